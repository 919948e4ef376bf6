// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// These kernels make one answer of a whole row. They serve AVX-512 too: there is little to gain in wider registers.

func tree256() {
	TEXT("tree256", NOSPLIT, "func(dst, src *float32, blocks int)")
	Pragma("noescape")
	Doc("tree256 sums each 8 of 64*blocks FP32 as R4's tree; blocks is positive, and dst may be src.")
	dst, src, blocks := arg("dst"), arg("src"), arg("blocks")
	Label("block")
	var pairs [4]reg.VecVirtual
	for i := range pairs {
		pairs[i] = YMM()
		VMOVUPS(at(src, 64*i), pairs[i])
		VHADDPS(at(src, 64*i+32), pairs[i], pairs[i])
	}
	// Of each 8 the first 4 are now in the low halves, the last 4 in the high ones.
	VHADDPS(pairs[1], pairs[0], pairs[0])
	VHADDPS(pairs[3], pairs[2], pairs[2])
	VPERM2F128(Imm(0x20), pairs[2], pairs[0], pairs[1])
	VPERM2F128(Imm(0x31), pairs[2], pairs[0], pairs[3])
	VADDPS(pairs[3], pairs[1], pairs[1])
	VMOVUPS(pairs[1], at(dst, 0))
	ADDQ(U32(256), src)
	ADDQ(U32(32), dst)
	DECQ(blocks)
	JNZ(LabelRef("block"))
	VZEROUPPER()
	RET()
}

// selectMask256 marks all that can be among the k largest. Of 16 groups, by the index's low bits, the k-th largest
// maximum is no more than the k-th largest number.
func selectMask256() {
	TEXT("selectMask256", NOSPLIT, "func(mask *uint64, v *float32, k, blocks int)")
	Pragma("noescape")
	Doc("selectMask256 marks, of 16*blocks finite FP32, a few that include the k largest and their equals;",
		"k is from 1 to 16, and blocks is positive.")
	mask, v, k, blocks := arg("mask"), arg("v"), arg("k"), arg("blocks")
	spill := AllocLocal(64)
	p, n := GP64(), GP64()
	m := lanes{256}.load(at(v, 0))
	MOVQ(v, p)
	MOVQ(blocks, n)
	Label("largest")
	for i := range m {
		VMAXPS(at(p, 32*i), m[i], m[i])
	}
	ADDQ(U32(64), p)
	DECQ(n)
	JNZ(LabelRef("largest"))

	// rank is how many maxima are as large, less k-1 and so positive for the k-th largest and below.
	const notLess, notMore = 0x0D, 0x02
	rank := v16{YMM(), YMM()}
	NEGQ(k)
	INCQ(k)
	for i := range m {
		VMOVUPS(m[i], spill.Offset(32*i))
		if i == 0 {
			VMOVD(k.As32(), rank[0].AsX())
			VPBROADCASTD(rank[0].AsX(), rank[0])
		} else {
			VMOVDQA(rank[0], rank[1])
		}
	}
	for j := range 16 {
		b := YMM()
		VBROADCASTSS(spill.Offset(4*j), b)
		for i := range m {
			t := YMM()
			VCMPPS(Imm(notLess), m[i], b, t)
			VPSUBD(t, rank[i], rank[i])
		}
	}
	none, zero := YMM(), YMM()
	VPXOR(zero, zero, zero)
	bits := GP32()
	MOVL(U32(0xFF800000), bits)
	VMOVD(bits, none.AsX())
	VPBROADCASTD(none.AsX(), none)
	for i := range m {
		VPCMPGTD(zero, rank[i], rank[i])
		VBLENDVPS(rank[i], m[i], none, m[i])
	}
	least, t := m[0], m[1]
	VMAXPS(t, least, least)
	VPERM2F128(Imm(0x01), least, least, t)
	VMAXPS(t, least, least)
	VPERMILPS(Imm(0x4E), least, t)
	VMAXPS(t, least, least)
	VPERMILPS(Imm(0xB1), least, t)
	VMAXPS(t, least, least)

	lo, hi := GP32(), GP32()
	a, b := YMM(), YMM()
	Label("mark")
	VCMPPS(Imm(notMore), at(v, 0), least, a)
	VCMPPS(Imm(notMore), at(v, 32), least, b)
	VMOVMSKPS(a, lo)
	VMOVMSKPS(b, hi)
	SHLL(Imm(8), hi)
	ORL(hi, lo)
	MOVW(lo.As16(), at(mask, 0))
	ADDQ(U32(64), v)
	ADDQ(U32(2), mask)
	DECQ(blocks)
	JNZ(LabelRef("mark"))
	VZEROUPPER()
	RET()
}

// scans256 look for the first 64 BF16 of some kind.
func scans256() {
	scan("zeros256", "that are not all zero, of either sign", 0x7FFF7FFF, func(v reg.GPVirtual, mask, t reg.VecVirtual) {
		VMOVDQU(at(v, 0), t)
		for i := 1; i < 4; i++ {
			VPOR(at(v, 32*i), t, t)
		}
		VPTEST(mask, t)
	})
	scan("finites256", "of which one is not finite", 0x7F807F80, func(v reg.GPVirtual, mask, t reg.VecVirtual) {
		VPAND(at(v, 0), mask, t)
		for i := 1; i < 4; i++ {
			e := YMM()
			VPAND(at(v, 32*i), mask, e)
			VPMAXUW(e, t, t)
		}
		VPCMPEQW(mask, t, t)
		VPTEST(t, t)
	})
}

// scan stops where found leaves the zero flag clear.
func scan(name, doc string, bits uint32, found func(v reg.GPVirtual, mask, t reg.VecVirtual)) {
	TEXT(name, NOSPLIT, "func(v *uint16, n int) int")
	Pragma("noescape")
	Doc(name+" gives the index of the first 64 BF16 "+doc+", or n,", "which is a positive multiple of 64.")
	v, n := arg("v"), arg("n")
	i, c := GP64(), GP32()
	mask, t := YMM(), YMM()
	MOVL(U32(bits), c)
	VMOVD(c, mask.AsX())
	VPBROADCASTD(mask.AsX(), mask)
	XORQ(i, i)
	Label("next")
	found(v, mask, t)
	JNZ(LabelRef("end"))
	ADDQ(U32(128), v)
	ADDQ(U32(64), i)
	CMPQ(i, n)
	JLT(LabelRef("next"))
	Label("end")
	VZEROUPPER()
	Store(i, ReturnIndex(0))
	RET()
}
