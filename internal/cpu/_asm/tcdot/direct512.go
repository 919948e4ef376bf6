// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	directGroup = 8 * 256 // bytes of a group of 64 outputs' weights
	directSize  = 96      // bytes of a group of a row of the left operand
	directAhead = 8192    // bytes ahead that weights are asked for, in the order of memory: any other is up to a quarter slower
)

// Constants of the direct kernels.
var (
	directUpper, directAbs, directField, direct2to25, direct2to0, directTwice Mem
)

func directConstants() {
	directUpper = words("directUpper", 0xFFFF0000)
	directAbs = words("directAbs", 0x7FFFFFFF)
	directField = words("directField", expMask)
	direct2to25 = words("direct2to25", 152<<23)
	direct2to0 = words("direct2to0", 127<<23)
	var upper []uint32 // bytes of the words' upper halves, each twice
	for i := range uint32(16) {
		upper = append(upper, 0x03020302+i%4*0x04040404)
	}
	directTwice = words("directTwice", upper...)
}

// direct512 reads packed weights where they lie. A word's magnitude is its exponent with the fraction below it, so the largest
// sum of that and the other operand's exponent has the largest exponent sum in front. The scale goes onto the weights' exponents,
// 32 at once. With bf16, VDPBF16PS multiplies them as they are: of one of the two pairs a word is zero, so that the product is
// exact and nothing is added to it.
func direct512(bf16 bool) {
	name, of := "direct512", "FP32"
	if bf16 {
		name, of = "direct512BF16", "pairs of a BF16 and a zero"
	}
	TEXT(name, NOSPLIT, "func(w *uint32, ng int, x *byte, xg int, acc *float32, n int) (doubt bool)")
	Doc(name+" walks ng groups of n rows over packed weights of 64 outputs, and reports a doubt in any of them.",
		"The rows are "+of+". Behind acc [n,64] it needs as much again.")
	w, ng, x, xg, acc, n := arg("w"), arg("ng"), arg("x"), arg("xg"), arg("acc"), arg("n")
	behind, toW, toX := GP64(), GP64(), GP64() // from acc to the exponents, and to the next group
	p, i, j, fetch := GP64(), GP64(), GP64(), GP64()
	q := reg.RSI
	pair, size := zs[0:8], zs[8:16] // of a group, and magnitudes of the next
	s, m, t := zs[16:20], zs[20:22], zs[22:26]
	scale, scales, shuffle, magnitude := zs[26], zs[27], zs[28], zs[29]
	least, most := zs[30], zs[31]
	bcst(0x7FFFFFFF, least)
	VPXORD(most, most, most)
	VMOVDQU32(directTwice, shuffle)
	bcst(0x7FFF7FFF, magnitude)
	MOVQ(n, behind)
	SHLQ(Imm(8), behind)

	multiply := func(term int, w, to reg.VecPhysical) {
		switch {
		case bf16:
			VPXORD(to, to, to)
			dotPairs(q, 4*term, w, to)
			return
		case term%2 == 0:
			VPSLLD(Imm(16), w, to)
		default:
			VPANDD_BCST(directUpper, w, to)
		}
		VMULPS_BCST(at(q, 4*term), to, to)
	}
	// sum takes pair k of the next group into the largest exponent sums.
	sum := func(k int, x Mem) {
		to := m[k%2]
		if k >= 2 {
			to = t[3]
		}
		VPBROADCASTD(x, to)
		VPADDW(to, size[k], to)
		if k >= 2 {
			VPMAXSW(to, m[k%2], m[k%2])
		}
	}
	// next keeps the next group's scale: the exponent of the largest of its sums and of the accumulator, of magnitude size,
	// less what 2^25 has. It is the exponents' latency that is hidden behind a whole group's products.
	next := func(size reg.VecPhysical) {
		VPMAXSW(m[0], m[1], m[0])
		VPROLD(Imm(16), m[0], m[1])
		VPMAXSW(m[0], m[1], m[0])
		VPMINSD(m[0], least, least)
		VPMAXSD(m[0], size, size)
		VPANDD_BCST(directField, size, size)
		VPSUBD_BCST(direct2to25, size, size)
		VMOVDQU32(size, byN(p, behind, 0))
	}
	// outputs goes over the four vectors of outputs, and in each over the rows.
	outputs := func(name string, ready, row func()) {
		MOVQ(U32(4), j)
		Label(name)
		ready()
		MOVQ(x, q)
		MOVQ(acc, p)
		MOVQ(n, i)
		Label(name + "Row")
		row()
		ADDQ(U32(directSize), q)
		ADDQ(U32(256), p)
		DECQ(i)
		JNZ(LabelRef(name + "Row"))
		ADDQ(U32(64), w)
		ADDQ(U32(64), acc)
		DECQ(j)
		JNZ(LabelRef(name))
		SUBQ(U32(4*64), w)
		SUBQ(U32(4*64), acc)
	}

	outputs("first", func() {
		for k := range 8 {
			VPANDD(at(w, 256*k), magnitude, size[k])
		}
	}, func() {
		for k := range 8 {
			sum(k, at(q, 64+4*k))
		}
		VPXORD(t[0], t[0], t[0])
		next(t[0])
	})
	MOVQ(U32(directGroup), toW)
	MOVQ(xg, toX)

	LEAQ(at(w, directAhead), fetch)

	Label("group")
	CMPQ(ng, U32(1))
	JNE(LabelRef("more"))
	XORQ(toW, toW) // there is no next group
	XORQ(toX, toX)
	Label("more")
	outputs("outputs", func() {
		for k := range 8 {
			VMOVDQU32(at(w, 256*k), pair[k])
			VPANDD(byN(w, toW, 256*k), magnitude, size[k])
			PREFETCHT0(at(fetch, 64*k))
		}
		ADDQ(U32(512), fetch)
	}, func() {
		VMOVDQU32(byN(p, behind, 0), scale)
		VPSHUFB(shuffle, scale, scales)
		VMOVUPS(at(p, 0), s[0])
		VPSUBD(scale, s[0], s[0])
		VCVTTPS2DQ(s[0], s[0])
		for k := range 8 {
			VPSUBW(scales, pair[k], t[2])
			for h := range 2 {
				term := 2*k + h
				to := t[h]
				if term < 3 {
					to = s[1+term]
				}
				multiply(term, t[2], to)
				VCVTTPS2DQ(to, to)
				if term >= 3 {
					VPADDD(to, s[(term+1)%4], s[(term+1)%4])
				}
			}
			sum(k, Mem{Base: q, Index: toX, Scale: 1, Disp: 64 + 4*k})
		}
		VPADDD(s[3], s[2], s[2])
		VPADDD(s[1], s[0], s[0])
		VPADDD(s[2], s[0], s[0])
		VPADDD_BCST(direct2to0, scale, scale)
		VCVTDQ2PS_RZ_SAE(s[0], s[0])
		VRANGEPS(Imm(0x0B), s[0], most, most)
		VMULPS(scale, s[0], s[0])
		VMOVUPS(s[0], at(p, 0))
		VPANDD_BCST(directAbs, s[0], s[0])
		next(s[0])
	})
	ADDQ(U32(directGroup), w)
	ADDQ(xg, x)
	DECQ(ng)
	JNZ(LabelRef("group"))

	bcst(65<<23, t[0])
	bcst(overf32, t[1])
	VPCMPD(Imm(1), t[0], least, reg.K1)
	VCMPPS(Imm(13), t[1], most, reg.K2)
	KORTESTW(reg.K1, reg.K2)
	doubt := GP8()
	SETNE(doubt)
	Store(doubt, ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// dotPairs is VDPBF16PS: to += the products of the pairs of words in z and those of the one pair at disp(q), which avo and Go's
// assembler do not know. disp is a multiple of 4.
func dotPairs(q reg.GPPhysical, disp int, z, to reg.VecPhysical) {
	if q != reg.RSI {
		panic("dotPairs: encoded for RSI")
	}
	not := func(n reg.VecPhysical, bit int) uint64 { return ^uint64(n.PhysicalIndex()) >> bit & 1 }
	code := []uint64{
		0x62,                                     // EVEX
		not(to, 3)<<7 | 0x60 | not(to, 4)<<4 | 2, // R, X and B, R'; map 0F38
		(^uint64(z.PhysicalIndex())&15)<<3 | 0x04 | 2, // W 0, z; prefix F3
		0x40 | 0x10 | not(z, 4)<<3,                    // 512 bits, the pair in all lanes, z's highest bit
		0x52,
		0x40 | uint64(to.PhysicalIndex()&7)<<3 | 4, 0x26, uint64(disp / 4), // RSI and a byte, which counts in pairs
	}
	var quad uint64
	for i, b := range code {
		quad |= b << (8 * i)
	}
	Instruction(&ir.Instruction{Opcode: "QUAD", Operands: []Op{U64(quad)}, Inputs: []Op{q, z, to}, Outputs: []Op{to}})
}
