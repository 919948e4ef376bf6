// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The panels are those of AVX-512 with vectors of 8 lanes: 32 outputs.
const k256 = 32*4 + 32

func rep8(name string, v uint32) Mem {
	return words(name, v, v, v, v, v, v, v, v)
}

func core256() {
	cexp := rep8("cexp", expMask)
	c152 := rep8("c152", 152<<23)
	c127 := rep8("c127", 127<<23)
	c64 := rep8("c64", 0x40404040)
	clim := rep8("clim", overflow)
	TEXT("core256", NOSPLIT, "func(panel, x *byte, xg int, acc *float32, n, ng int, bad *byte)")
	Doc("core256 walks ng groups of n rows over one panel of 32 outputs.")
	panel, x, xg, acc, n, ng, bad := arg("panel"), arg("x"), arg("xg"), arg("acc"), arg("n"), arg("ng"), arg("bad")
	y := ys
	S, sc, m, dirty := y[0:4], y[4:8], y[13], y[14]
	p, q, g, i := GP64(), GP64(), GP64(), GP64()

	// top and row do what core512's do.
	top := func(r, k int) {
		t := y[15]
		if k == 0 {
			t = m
		}
		VPBROADCASTD(at(q, 128*r+64+4*k), t)
		VPADDSB(at(panel, k*k256+128), t, t)
		if k > 0 {
			VPMAXSB(t, m, m)
		}
	}
	row := func(next bool, clean string) {
		VMOVDQA(m, dirty)
		VPMAXSB(c64, m, y[12])
		VMOVDQU(cexp, y[11])
		for j, sh := range []int{23, 15, 7, 1} {
			t, e, a := y[8], y[9], y[10]
			if j == 3 {
				VPSRLD(Imm(1), y[12], t)
			} else {
				VPSLLD(Imm(uint64(sh)), y[12], t)
			}
			VMOVUPS(at(p, 32*j), a)
			VPAND(y[11], t, t)
			VPAND(y[11], a, e)
			VPMAXUD(t, e, e)
			VMOVDQU(c152, sc[j])
			VPSUBD(e, sc[j], sc[j])
			VPADDD(sc[j], a, a)
			VCVTTPS2DQ(a, S[j])
		}
		for k := range 16 {
			a := y[8]
			VBROADCASTSS(at(q, 4*k), a)
			for j := range 4 {
				t := y[9+j]
				VPADDD(sc[j], a, t)
				VMULPS(at(panel, k*k256+32*j), t, t)
				VCVTTPS2DQ(t, t)
				VPADDD(t, S[j], S[j])
			}
			if next {
				top(1, k)
			}
		}
		run := y[15]
		for j := range 4 {
			t, u, v := y[8], y[9+j%2], y[11+j%2]
			if j == 0 {
				t = run
			}
			truncate256(S[j], t, u)
			if j > 0 {
				VPMAXUD(t, run, run)
			}
			VMOVDQU(c127, v)
			VPSUBD(sc[j], v, v)
			VMULPS(v, u, u)
			VMOVUPS(u, at(p, 32*j))
		}
		VPMAXUD(clim, run, y[8])
		VPCMPEQD(y[8], run, y[8]) // ones where the sum may have wrapped
		VPMINUB(c64, dirty, y[9])
		VPCMPEQB(y[9], dirty, y[9]) // ones where the exponent is in doubt
		VPOR(y[9], y[8], y[9])
		VPTEST(y[9], y[9])
		JEQ(LabelRef(clean))
		MOVB(Imm(1), at(i, 0))
		Label(clean)
	}

	Label("group")
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
	ADDQ(U32(128), p)
	ADDQ(U32(128), q)
	INCQ(i)
	DECQ(g)
	JNZ(LabelRef("row"))

	Label("last")
	row(false, "cleanLast")
	ADDQ(U32(16*k256), panel)
	ADDQ(xg, x)
	DECQ(ng)
	JNZ(LabelRef("group"))
	VZEROUPPER()
	RET()
}

// truncate256 is int32 to FP32 toward zero, and the integer's magnitude. Clearing the bits A>>24 of A removes the bit that
// nearest-even would round by.
func truncate256(from, magnitude, to reg.VecPhysical) {
	VPABSD(from, magnitude)
	VPSRLD(Imm(24), magnitude, to)
	VPANDN(magnitude, to, to)
	VPSIGND(from, to, to)
	VCVTDQ2PS(to, to)
}

func transpose256() {
	TEXT("transpose256", NOSPLIT, "func(w *uint16, stride int, buf *uint32)")
	Doc("transpose256 turns 32 rows of 32 BF16 into 16 rows of 32 k-pairs.")
	w, stride, buf := arg("w"), arg("stride"), arg("buf")
	cnt, p, half := GP64(), GP64(), GP64()
	MOVQ(U32(4), cnt)
	Label("tile")
	MOVQ(U32(2), half)
	Label("half")
	MOVQ(w, p)
	turn256(p, stride, func(i int) Mem { return at(buf, i*128) })
	ADDQ(U32(32), w)
	ADDQ(U32(8*128), buf)
	DECQ(half)
	JNZ(LabelRef("half"))
	MOVQ(p, w) // p is 8 rows on, at the second half
	SUBQ(U32(32), w)
	SUBQ(U32(16*128-32), buf)
	DECQ(cnt)
	JNZ(LabelRef("tile"))
	VZEROUPPER()
	RET()
}

func tile256() {
	TEXT("tile256", NOSPLIT, "func(src *uint32, stride int, dst *uint32, apart int)")
	Doc("tile256 does what tile512 does.")
	src, stride, dst, apart := arg("src"), arg("stride"), arg("dst"), arg("apart")
	from, row := GP64(), GP64()
	for half := range 2 {
		for quarter := range 2 { // columns 8*half of rows 8*quarter
			MOVQ(src, from)
			if quarter == 1 {
				LEAQ(Mem{Base: src, Index: stride, Scale: 8}, from)
			}
			ADDQ(U32(uint32(32*half)), from)
			MOVQ(dst, row)
			ADDQ(U32(uint32(32*quarter)), row)
			turn256(from, stride, func(i int) Mem {
				if i > 0 {
					ADDQ(apart, row)
				}
				return at(row, 0)
			})
		}
		if half == 0 {
			for range 8 {
				ADDQ(apart, dst)
			}
		}
	}
	VZEROUPPER()
	RET()
}

// turn256 turns 8 rows of 8 words as turn512 does 16 of 16.
func turn256(src, stride reg.GPVirtual, to func(row int) Mem) {
	r, t := ys[:8], ys[8:]
	for i := range 8 {
		VMOVDQU(at(src, 0), r[i])
		ADDQ(stride, src)
	}
	for i := 0; i < 8; i += 2 {
		VPUNPCKLDQ(r[i+1], r[i], t[i])
		VPUNPCKHDQ(r[i+1], r[i], t[i+1])
	}
	for i := 0; i < 8; i += 4 {
		VPUNPCKLQDQ(t[i+2], t[i], r[i])
		VPUNPCKHQDQ(t[i+2], t[i], r[i+1])
		VPUNPCKLQDQ(t[i+3], t[i+1], r[i+2])
		VPUNPCKHQDQ(t[i+3], t[i+1], r[i+3])
	}
	for half, part := range []uint64{0x20, 0x31} {
		for c := range 4 {
			VPERM2I128(Imm(part), r[4+c], r[c], t[c])
			VMOVDQU(t[c], to(4*half+c))
		}
	}
}

func expandConsts256() {
	bcstReg(Load(Param("scale"), GP32()).(reg.GPVirtual), ys[8])
	bcstReg(Load(Param("base"), GP32()).(reg.GPVirtual), ys[9])
	bcst(0x7FFF7FFF, ys[10])
	bcst(0xFF00FF00, ys[11])
	bcst(0x00800080, ys[12])
	bcst(0x80008000, ys[13])
	bcst(0xFFFF0000, ys[14])
}

// expBytes256 is expBytes512; t, u and v are scratch.
func expBytes256(a, b, dst, t, u, v reg.VecPhysical) {
	y := ys
	VPXOR(v, v, v)
	VPAND(y[10], a, t)
	VPAND(y[10], b, dst)
	VPCMPEQW(v, t, u)
	VPCMPEQW(v, dst, v)
	VPSUBUSW(y[9], t, t)
	VPSUBUSW(y[9], dst, dst)
	VPSRLW(Imm(7), t, t)
	VPSLLW(Imm(1), dst, dst)
	VPAND(y[11], dst, dst)
	VPOR(t, dst, dst)
	VPAND(y[12], u, u)
	VPAND(y[13], v, v)
	VPOR(u, v, v)
	VPOR(v, dst, dst)
}

func floats256(a reg.VecPhysical, odd bool, t reg.VecPhysical, m Mem) {
	if odd {
		VPAND(ys[14], a, t)
	} else {
		VPSLLD(Imm(16), a, t)
	}
	VMULPS(ys[8], t, t)
	VMOVUPS(t, m)
}

func expandPairs256() {
	TEXT("expandPairs256", NOSPLIT, "func(buf *uint32, np int, panel *byte, scale, base uint32, next uintptr, stride int)")
	Doc("expandPairs256 makes panel entries from np rows of 32 k-pairs,",
		"and asks for 2 rows from next on, for each, of the weights to come.")
	buf, np, panel, next, stride := arg("buf"), arg("np"), arg("panel"), arg("next"), arg("stride")
	expandConsts256()
	y := ys
	Label("pair")
	for range 2 {
		PREFETCHT1(at(next, 0))
		ADDQ(stride, next)
	}
	VMOVDQU(at(buf, 0), y[0])
	VMOVDQU(at(buf, 32), y[1])
	expBytes256(y[0], y[1], y[2], y[4], y[5], y[6])
	for j := range 2 {
		floats256(y[j], false, y[4], at(panel, 32*j))
		floats256(y[j], true, y[5], at(panel, k256+32*j))
	}
	VMOVDQU(at(buf, 64), y[0])
	VMOVDQU(at(buf, 96), y[1])
	expBytes256(y[0], y[1], y[3], y[4], y[5], y[6])
	for j := range 2 {
		floats256(y[j], false, y[4], at(panel, 64+32*j))
		floats256(y[j], true, y[5], at(panel, k256+64+32*j))
	}
	VPSLLD(Imm(16), y[3], y[4])
	VPBLENDW(Imm(0xAA), y[4], y[2], y[4])
	VPSRLD(Imm(16), y[2], y[5])
	VPBLENDW(Imm(0xAA), y[3], y[5], y[5])
	VMOVDQU(y[4], at(panel, 128))
	VMOVDQU(y[5], at(panel, k256+128))
	ADDQ(U32(128), buf)
	ADDQ(U32(2*k256), panel)
	DECQ(np)
	JNZ(LabelRef("pair"))
	VZEROUPPER()
	RET()
}

func expandRows256() {
	TEXT("expandRows256", NOSPLIT, "func(w *uint16, stride, ahead, nk int, panel *byte, scale, base uint32)")
	Doc("expandRows256 makes panel entries from nk rows of 32 consecutive BF16;", "vector j holds the words 16*(j%2) + 2*lane + j/2.")
	w, stride, ahead, nk, panel := arg("w"), arg("stride"), arg("ahead"), arg("nk"), arg("panel")
	expandConsts256()
	y := ys
	Label("k")
	PREFETCHT1(byN(w, ahead, 0))
	VMOVDQU(at(w, 0), y[0])
	VMOVDQU(at(w, 32), y[1])
	expBytes256(y[0], y[1], y[2], y[4], y[5], y[6])
	VMOVDQU(y[2], at(panel, 128))
	for j := range 4 {
		floats256(y[j%2], j > 1, y[4+j%2], at(panel, 32*j))
	}
	ADDQ(stride, w)
	ADDQ(U32(k256), panel)
	DECQ(nk)
	JNZ(LabelRef("k"))
	VZEROUPPER()
	RET()
}

func finish256() {
	for v := range 4 {
		add, zip := v&1 != 0, v&2 != 0
		name := fmt.Sprintf("finish256%s%s", []string{"", "Zip"}[v/2], []string{"Set", "Add"}[v%2])
		TEXT(name, NOSPLIT, "func(acc, scale, out *float32, stride, n int)")
		acc, scale, out, stride, n := arg("acc"), arg("scale"), arg("out"), arg("stride"), arg("n")
		y := ys
		if add {
			bcst(0x7FFFFFFF, y[14])
		}
		Label("row")
		VBROADCASTSS(at(scale, 0), y[15])
		for j := range 4 {
			VMULPS(at(acc, 32*j), y[15], y[j])
		}
		o := []int{0, 1, 2, 3}
		if zip {
			for h := range 2 {
				VPUNPCKLDQ(y[2+h], y[h], y[8])
				VPUNPCKHDQ(y[2+h], y[h], y[9])
				VPERM2I128(Imm(0x20), y[9], y[8], y[4+2*h])
				VPERM2I128(Imm(0x31), y[9], y[8], y[5+2*h])
			}
			o = []int{4, 5, 6, 7}
		}
		for j := range 4 {
			if add {
				VADDPS(at(out, 32*j), y[o[j]], y[o[j]])
				VCMPPS(Imm(3), y[o[j]], y[o[j]], y[13])
				VBLENDVPS(y[13], y[14], y[o[j]], y[o[j]])
			}
			VMOVUPS(y[o[j]], at(out, 32*j))
		}
		ADDQ(U32(128), acc)
		ADDQ(U32(4), scale)
		ADDQ(stride, out)
		DECQ(n)
		JNZ(LabelRef("row"))
		VZEROUPPER()
		RET()
	}
}

// packSpread256 serves AVX-512 too: the rows' layout has no lanes.
func packSpread256() {
	TEXT("packSpread256", NOSPLIT, "func(x *uint16, ng int, dst *byte, xg int, scale, base uint32)")
	Doc("packSpread256 writes ng groups of one row: 16 FP32, 16 exponent bytes each four times.")
	x, ng, dst, xg := arg("x"), arg("ng"), arg("dst"), arg("xg")
	y := ys
	bcstReg(Load(Param("scale"), GP32()).(reg.GPVirtual), y[8])
	bcstReg(Load(Param("base"), GP32()).(reg.GPVirtual), y[9])
	bcst(0x7FFF, y[10])
	bcst(0x7F, y[11]) // a zero is 127+1
	bcst(0x01010101, y[12])
	VPXOR(y[13], y[13], y[13])
	bcst(1, y[3])
	Label("group")
	for h := range 2 {
		VPMOVZXWD(at(x, 16*h), y[0])
		VPSLLD(Imm(16), y[0], y[1])
		VMULPS(y[8], y[1], y[1])
		VMOVUPS(y[1], at(dst, 32*h))
		VPAND(y[10], y[0], y[0])
		VPCMPEQD(y[13], y[0], y[2])
		VPSUBUSW(y[9], y[0], y[0])
		VPSRLD(Imm(7), y[0], y[0])
		VPAND(y[11], y[2], y[2])
		VPADDD(y[2], y[0], y[0])
		VPADDD(y[3], y[0], y[0])
		VPMULLD(y[12], y[0], y[0])
		VMOVDQU(y[0], at(dst, 64+32*h))
	}
	ADDQ(U32(32), x)
	ADDQ(xg, dst)
	DECQ(ng)
	JNZ(LabelRef("group"))
	VZEROUPPER()
	RET()
}

// packDirect256 does, too.
func packDirect256(bf16 bool) {
	name, of := "packFloats256", "16 FP32"
	if bf16 {
		name, of = "packPairs256", "16 pairs of a BF16 and a zero, the even ones' BF16 below"
	}
	TEXT(name, NOSPLIT, "func(x *uint16, ng int, dst *byte, xg int, scale, base uint32)")
	Doc(name + " writes ng groups of one row: " + of + "; and 16 words of exponents.")
	x, ng, dst, xg := arg("x"), arg("ng"), arg("dst"), arg("xg")
	y := ys
	bcstReg(Load(Param("scale"), GP32()).(reg.GPVirtual), y[8])
	bcstReg(Load(Param("base"), GP32()).(reg.GPVirtual), y[9])
	bcst(0x7F807F80, y[10])
	bcst(0xFFFF0000, y[11])
	if bf16 {
		VMOVDQU(words("apart", 16, 0, 16, 0, 16, 0, 16, 0), y[12])
	}
	Label("group")
	for h := range 2 {
		VPMOVZXWD(at(x, 16*h), y[h])
		VPSLLD(Imm(16), y[h], y[h])
		VMULPS(y[8], y[h], y[h])
		if bf16 {
			VPAND(y[11], y[h], y[h]) // a subnormal may have more bits
			VPSRLVD(y[12], y[h], y[h])
		}
		VMOVUPS(y[h], at(dst, 32*h))
	}
	VPAND(at(x, 0), y[10], y[2])
	VPSUBW(y[9], y[2], y[2])
	VMOVDQU(y[2], at(dst, 64))
	ADDQ(U32(32), x)
	ADDQ(xg, dst)
	DECQ(ng)
	JNZ(LabelRef("group"))
	VZEROUPPER()
	RET()
}

func rowMax256() {
	TEXT("rowMax256", NOSPLIT, "func(x *uint16, ng int) uint32")
	Doc("rowMax256 is the largest magnitude, as bits, of 16*ng BF16.")
	x, ng := arg("x"), arg("ng")
	y := ys
	bcst(0x7FFF7FFF, y[1])
	VPXOR(y[0], y[0], y[0])
	Label("group")
	VPAND(at(x, 0), y[1], y[2])
	VPMAXUW(y[2], y[0], y[0])
	ADDQ(U32(32), x)
	DECQ(ng)
	JNZ(LabelRef("group"))
	VEXTRACTI128(Imm(1), y[0], y[1].AsX())
	VPMAXUW(y[1].AsX(), y[0].AsX(), y[0].AsX())
	for _, s := range []uint64{8, 4, 2} {
		VPSRLDQ(Imm(s), y[0].AsX(), y[1].AsX())
		VPMAXUW(y[1].AsX(), y[0].AsX(), y[0].AsX())
	}
	r := GP32()
	VMOVD(y[0].AsX(), r)
	ANDL(U32(0xFFFF), r)
	VZEROUPPER()
	Store(r, ReturnIndex(0))
	RET()
}
