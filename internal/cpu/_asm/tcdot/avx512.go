// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A panel of 64 outputs holds, for each k, 64 FP32 (four vectors) and then
// 64 exponent bytes; byte j of dword l belongs to lane l of vector j.
const k512 = 64*4 + 64

func core512() {
	TEXT("core512", NOSPLIT, "func(panel, x *byte, xg int, acc *float32, n, ng int, bad *byte)")
	Doc("core512 walks ng groups of n rows over one panel of 64 outputs.")
	panel, x, xg, acc, n, ng, bad := arg("panel"), arg("x"), arg("xg"), arg("acc"), arg("n"), arg("ng"), arg("bad")
	z := zs
	A, S, sc, m, run, dirty := z[0:4], z[4:8], z[8:12], z[20:22], z[30], z[31]
	cexp, c152, c127, c7f, c64, clim := z[24], z[25], z[26], z[27], z[28], z[29]
	bcst(expMask, cexp)
	bcst(152<<23, c152)
	bcst(127<<23, c127)
	bcst(0x7FFFFFFF, c7f)
	bcst(0x40404040, c64)
	bcst(overf32, clim)
	p, q, g, i := GP64(), GP64(), GP64(), GP64()

	// top takes term k of row r into the largest exponent sums, 64 outputs
	// at once.
	top := func(r, k int) {
		t := z[22+k%2]
		if k < 2 {
			t = m[k]
		}
		VPBROADCASTD(at(q, 128*r+64+4*k), t)
		VPADDSB(at(panel, k*k512+256), t, t)
		if k >= 2 {
			VPMAXSB(t, m[k%2], m[k%2])
		}
	}
	// row finishes a row whose largest exponents are known, while it finds
	// those of the next row: their latency hides behind the products.
	row := func(next bool, clean string) {
		for j := range 4 {
			VMOVUPS(at(p, 64*j), A[j])
		}
		VPMAXSB(m[1], m[0], dirty)
		VPMAXSB(c64, dirty, m[0])
		for j, sh := range []int{23, 15, 7, 1} {
			t, e := z[13+j%2*2], z[14+j%2*2]
			if j == 3 {
				VPSRLD(Imm(1), m[0], t)
			} else {
				VPSLLD(Imm(uint64(sh)), m[0], t)
			}
			VPANDD(cexp, t, t)
			VPANDD(cexp, A[j], e)
			VPMAXUD(t, e, e)
			VPSUBD(e, c152, sc[j])
			VPADDD(sc[j], A[j], t)
			VCVTTPS2DQ(t, S[j])
		}
		for k := range 16 {
			a := z[12+k%2]
			VBROADCASTSS(at(q, 4*k), a)
			for j := range 4 {
				t := z[14+(4*k+j)%6]
				VPADDD(sc[j], a, t)
				VMULPS(at(panel, k*k512+64*j), t, t)
				VCVTTPS2DQ(t, t)
				VPADDD(t, S[j], S[j])
			}
			if next {
				top(1, k)
			}
		}
		for j := range 4 {
			t := z[12+j]
			VPSUBD(sc[j], c127, sc[j])
			VCVTDQ2PS_RZ_SAE(S[j], t)
			if j == 0 {
				VANDPS(c7f, t, run)
			} else {
				VRANGEPS(Imm(0x0B), t, run, run)
			}
			VMULPS(sc[j], t, t)
			VMOVUPS(t, at(p, 64*j))
		}
		VCMPPS(Imm(13), clim, run, reg.K1)
		VPCMPUB(Imm(2), c64, dirty, reg.K2)
		KORTESTQ(reg.K1, reg.K2)
		JEQ(LabelRef(clean))
		MOVB(Imm(1), at(i, 0))
		Label(clean)
	}

	Label("group")
	// Rows follow one another inside a group, since they do not depend on
	// each other.
	MOVQ(x, q)
	MOVQ(acc, p)
	MOVQ(bad, i)
	MOVQ(n, g)
	for k := range 16 {
		top(0, k)
	}
	DECQ(g)
	JEQ(LabelRef("last"))

	Label("row")
	row(true, "clean")
	ADDQ(U32(256), p)
	ADDQ(U32(128), q)
	INCQ(i)
	DECQ(g)
	JNZ(LabelRef("row"))

	Label("last")
	row(false, "cleanLast")
	ADDQ(U32(16*k512), panel)
	ADDQ(xg, x)
	DECQ(ng)
	JNZ(LabelRef("group"))
	VZEROUPPER()
	RET()
}

func transpose512() {
	TEXT("transpose512", NOSPLIT, "func(w *uint16, stride int, buf *uint32)")
	Doc("transpose512 turns 64 rows of 32 BF16 into 16 rows of 64 k-pairs.")
	w, stride, buf := arg("w"), arg("stride"), arg("buf")
	cnt := GP64()
	MOVQ(U32(4), cnt)
	Label("tile")
	turn512(w, stride, func(i int) Mem { return at(buf, i*256) })
	ADDQ(U32(64), buf)
	DECQ(cnt)
	JNZ(LabelRef("tile"))
	VZEROUPPER()
	RET()
}

func tile512() {
	TEXT("tile512", NOSPLIT, "func(src *uint32, stride int, dst *uint32, apart int)")
	Doc("tile512 turns 16 rows of 16 words; the rows it writes are as many bytes apart.")
	src, stride, dst, apart := arg("src"), arg("stride"), arg("dst"), arg("apart")
	turn512(src, stride, func(i int) Mem {
		if i > 0 {
			ADDQ(apart, dst)
		}
		return at(dst, 0)
	})
	VZEROUPPER()
	RET()
}

// turn512 turns 16 rows of 16 words, from src on, which it leaves behind them. It writes rows 0 to 15 in order.
func turn512(src, stride reg.GPVirtual, to func(row int) Mem) {
	r, t := zs[:16], zs[16:]
	for i := range 16 {
		VMOVDQU32(at(src, 0), r[i])
		ADDQ(stride, src)
	}
	for i := 0; i < 16; i += 2 {
		VPUNPCKLDQ(r[i+1], r[i], t[i])
		VPUNPCKHDQ(r[i+1], r[i], t[i+1])
	}
	for i := 0; i < 16; i += 4 {
		VPUNPCKLQDQ(t[i+2], t[i], r[i])
		VPUNPCKHQDQ(t[i+2], t[i], r[i+1])
		VPUNPCKLQDQ(t[i+3], t[i+1], r[i+2])
		VPUNPCKHQDQ(t[i+3], t[i+1], r[i+3])
	}
	// r[4*b+c] holds word c of each 128 bits, of rows 4*b to 4*b+3.
	for c := range 4 {
		a, b, d, e := t[c], t[4+c], t[8+c], t[12+c]
		VSHUFI32X4(Imm(0x88), r[4+c], r[c], a)
		VSHUFI32X4(Imm(0x88), r[12+c], r[8+c], b)
		VSHUFI32X4(Imm(0xDD), r[4+c], r[c], d)
		VSHUFI32X4(Imm(0xDD), r[12+c], r[8+c], e)
	}
	for q, in := range [][3]int{{0, 4, 0x88}, {8, 12, 0x88}, {0, 4, 0xDD}, {8, 12, 0xDD}} {
		for c := range 4 {
			VSHUFI32X4(Imm(uint64(in[2])), t[in[1]+c], t[in[0]+c], r[0])
			VMOVDQU32(r[0], to(4*q+c))
		}
	}
}

// expandConsts holds what both expansions keep in registers.
func expandConsts512() (scale, base reg.VecPhysical) {
	scale, base = zs[24], zs[25]
	bcstReg(Load(Param("scale"), GP32()).(reg.GPVirtual), scale)
	bcstReg(Load(Param("base"), GP32()).(reg.GPVirtual), base)
	bcst(0x7FFF7FFF, zs[26])
	bcst(0xFF00FF00, zs[27])
	bcst(0x00800080, zs[28])
	bcst(0x80008000, zs[29])
	bcst(0xFFFF0000, zs[30])
	return
}

// expBytes512 leaves in dst, for each word, the exponent byte of a's word
// below that of b's: 128 for zero, else max(0, E-base). t is scratch.
func expBytes512(a, b, dst, t reg.VecPhysical) {
	VPTESTNMW(zs[26], a, reg.K1)
	VPTESTNMW(zs[26], b, reg.K2)
	VPANDD(zs[26], a, t)
	VPANDD(zs[26], b, dst)
	VPSUBUSW(zs[25], t, t)
	VPSUBUSW(zs[25], dst, dst)
	VPSRLW(Imm(7), t, t)
	VPSLLW(Imm(1), dst, dst)
	VPTERNLOGD(Imm(0xE4), zs[27], t, dst)
	VPADDW(zs[28], dst, reg.K1, dst)
	VPADDW(zs[29], dst, reg.K2, dst)
}

// floats512 writes the FP32 of a's even or odd words, scaled.
func floats512(a reg.VecPhysical, odd bool, t reg.VecPhysical, m Mem) {
	if odd {
		VPANDD(zs[30], a, t)
	} else {
		VPSLLD(Imm(16), a, t)
	}
	VMULPS(zs[24], t, t)
	VMOVUPS(t, m)
}

func expandPairs512() {
	TEXT("expandPairs512", NOSPLIT, "func(buf *uint32, np int, panel *byte, scale, base uint32, next uintptr, stride int)")
	Doc("expandPairs512 makes panel entries from np rows of 64 k-pairs,",
		"and asks for 4 rows from next on, for each, of the weights to come.")
	buf, np, panel, next, stride := arg("buf"), arg("np"), arg("panel"), arg("next"), arg("stride")
	expandConsts512()
	v := zs[0:4]
	Label("pair")
	for range 4 {
		PREFETCHT1(at(next, 0))
		ADDQ(stride, next)
	}
	for j := range 4 {
		VMOVDQU32(at(buf, 64*j), v[j])
	}
	expBytes512(v[0], v[1], zs[4], zs[6])
	expBytes512(v[2], v[3], zs[5], zs[7])
	VPSLLD(Imm(16), zs[5], zs[6])
	VPTERNLOGD(Imm(0xE4), zs[30], zs[4], zs[6])
	VPSRLD(Imm(16), zs[4], zs[7])
	VPTERNLOGD(Imm(0xE4), zs[30], zs[7], zs[5])
	VMOVDQU32(zs[6], at(panel, 256))
	VMOVDQU32(zs[5], at(panel, k512+256))
	for j := range 4 {
		floats512(v[j], false, zs[8+j], at(panel, 64*j))
		floats512(v[j], true, zs[12+j], at(panel, k512+64*j))
	}
	ADDQ(U32(256), buf)
	ADDQ(U32(2*k512), panel)
	DECQ(np)
	JNZ(LabelRef("pair"))
	VZEROUPPER()
	RET()
}

func expandRows512() {
	TEXT("expandRows512", NOSPLIT, "func(w *uint16, stride, ahead, nk int, panel *byte, scale, base uint32)")
	Doc("expandRows512 makes panel entries from nk rows of 64 consecutive BF16;", "vector j holds the words 32*(j%2) + 2*lane + j/2.")
	w, stride, ahead, nk, panel := arg("w"), arg("stride"), arg("ahead"), arg("nk"), arg("panel")
	expandConsts512()
	v := zs[0:2]
	Label("k")
	for j := range 2 {
		VMOVDQU32(at(w, 64*j), v[j])
		PREFETCHT1(byN(w, ahead, 64*j))
	}
	expBytes512(v[0], v[1], zs[4], zs[6])
	VMOVDQU32(zs[4], at(panel, 256))
	for j := range 4 {
		floats512(v[j%2], j > 1, zs[8+j], at(panel, 64*j))
	}
	ADDQ(stride, w)
	ADDQ(U32(k512), panel)
	DECQ(nk)
	JNZ(LabelRef("k"))
	VZEROUPPER()
	RET()
}

func finish512() {
	var lo, hi []uint32
	for i := range uint32(8) {
		lo = append(lo, i, 16+i)
		hi = append(hi, 8+i, 24+i)
	}
	mlo, mhi := words("zipLo512", lo...), words("zipHi512", hi...)
	for v := range 4 {
		add, zip := v&1 != 0, v&2 != 0
		name := fmt.Sprintf("finish512%s%s", []string{"", "Zip"}[v/2], []string{"Set", "Add"}[v%2])
		TEXT(name, NOSPLIT, "func(acc, scale, out *float32, stride, n int)")
		acc, scale, out, stride, n := arg("acc"), arg("scale"), arg("out"), arg("stride"), arg("n")
		z := zs
		if zip {
			VMOVDQU32(mlo, z[17])
			VMOVDQU32(mhi, z[18])
		}
		if add {
			bcst(0x7FFFFFFF, z[20])
		}
		Label("row")
		VBROADCASTSS(at(scale, 0), z[15])
		for j := range 4 {
			VMULPS(at(acc, 64*j), z[15], z[j])
		}
		o := []int{0, 1, 2, 3}
		if zip {
			for h := range 2 {
				VMOVDQA32(z[17], z[4+2*h])
				VPERMI2D(z[2+h], z[h], z[4+2*h])
				VMOVDQA32(z[18], z[5+2*h])
				VPERMI2D(z[2+h], z[h], z[5+2*h])
			}
			o = []int{4, 5, 6, 7}
		}
		for j := range 4 {
			if add {
				VADDPS(at(out, 64*j), z[o[j]], z[o[j]])
				VCMPPS(Imm(3), z[o[j]], z[o[j]], reg.K1) // where it is a NaN
				VMOVAPS(z[20], reg.K1, z[o[j]])
			}
			VMOVUPS(z[o[j]], at(out, 64*j))
		}
		ADDQ(U32(256), acc)
		ADDQ(U32(4), scale)
		ADDQ(stride, out)
		DECQ(n)
		JNZ(LabelRef("row"))
		VZEROUPPER()
		RET()
	}
}
