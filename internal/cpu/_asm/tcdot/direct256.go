// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// direct256 does what direct512 does, for 32 outputs. With 16 registers it reads the weights anew for each row.
func direct256() {
	const line = 32 * 4 // bytes of a pair of k
	c152, c127 := rep8("direct2to25x8", 152<<23), rep8("direct2to0x8", 127<<23)
	field, absolute := rep8("directFieldx8", expMask), rep8("directAbsx8", 0x7FFFFFFF)
	TEXT("direct256", NOSPLIT, "func(w *uint32, ng int, x *byte, xg int, acc *float32, n int) (doubt bool)")
	Doc("direct256 walks ng groups of n rows over packed weights of 32 outputs, and reports a doubt in any of them.",
		"The rows are FP32. Behind acc [n,32] it needs as much again.")
	w, ng, x, xg, acc, n := arg("w"), arg("ng"), arg("x"), arg("xg"), arg("acc"), arg("n")
	behind, toW, toX := GP64(), GP64(), GP64()
	p, q, i, j, fetch := GP64(), GP64(), GP64(), GP64(), GP64()
	y := ys
	s, m, t := y[0:3], y[3:5], y[5:9]
	scale, scales, magnitude, upper, least, most := y[9], y[10], y[11], y[12], y[13], y[14]
	bcst(0x7FFFFFFF, least)
	VPXOR(most, most, most)
	bcst(0x7FFF7FFF, magnitude)
	bcst(0xFFFF0000, upper)
	MOVQ(n, behind)
	SHLQ(Imm(7), behind)

	sum := func(k int, w, x Mem) {
		VPBROADCASTD(x, t[2])
		VPAND(w, magnitude, t[3])
		if k < 2 {
			VPADDW(t[2], t[3], m[k])
			return
		}
		VPADDW(t[2], t[3], t[2])
		VPMAXSW(t[2], m[k%2], m[k%2])
	}
	next := func() { // of an accumulator of magnitude s[0]
		VPMAXSW(m[0], m[1], m[0])
		VPSLLD(Imm(16), m[0], m[1])
		VPMAXSW(m[0], m[1], m[0])
		VPMINSD(m[0], least, least)
		VPMAXSD(m[0], s[0], s[0])
		VPAND(field, s[0], s[0])
		VMOVDQU(c152, t[2])
		VPSUBD(s[0], t[2], t[2])
		VMOVDQU(t[2], byN(p, behind, 0))
	}
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
		ADDQ(U32(line), p)
		DECQ(i)
		JNZ(LabelRef(name + "Row"))
		ADDQ(U32(32), w)
		ADDQ(U32(32), acc)
		DECQ(j)
		JNZ(LabelRef(name))
		SUBQ(U32(4*32), w)
		SUBQ(U32(4*32), acc)
	}

	outputs("first", func() {}, func() {
		for k := range 8 {
			sum(k, at(w, line*k), at(q, 64+4*k))
		}
		VPXOR(s[0], s[0], s[0])
		next()
	})
	MOVQ(U32(8*line), toW)
	MOVQ(xg, toX)
	LEAQ(at(w, directAhead), fetch)

	Label("group")
	CMPQ(ng, U32(1))
	JNE(LabelRef("more"))
	XORQ(toW, toW)
	XORQ(toX, toX)
	Label("more")
	outputs("outputs", func() {
		for k := range 4 {
			PREFETCHT0(at(fetch, 64*k))
		}
		ADDQ(U32(256), fetch)
	}, func() {
		VMOVDQU(byN(p, behind, 0), scale)
		VPSHUFB(directTwice, scale, scales)
		VPADDD(at(p, 0), scale, s[0])
		VCVTTPS2DQ(s[0], s[0])
		for k := range 8 {
			VPADDW(at(w, line*k), scales, t[0])
			for h := range 2 {
				term := 2*k + h
				to := t[1]
				if term < 2 {
					to = s[1+term]
				}
				if h == 0 {
					VPSLLD(Imm(16), t[0], to)
				} else {
					VPAND(upper, t[0], to)
				}
				VBROADCASTSS(at(q, 4*term), t[2])
				VMULPS(t[2], to, to)
				VCVTTPS2DQ(to, to)
				if term >= 2 {
					VPADDD(to, s[term%3], s[term%3])
				}
			}
			sum(k, Mem{Base: w, Index: toW, Scale: 1, Disp: line * k}, Mem{Base: q, Index: toX, Scale: 1, Disp: 64 + 4*k})
		}
		VPADDD(s[1], s[0], s[0])
		VPADDD(s[2], s[0], s[0])
		VMOVDQU(c127, t[3])
		VPSUBD(scale, t[3], t[3])
		truncate256(s[0], t[0], t[1])
		VPMAXUD(t[0], most, most)
		VMULPS(t[3], t[1], t[1])
		VMOVUPS(t[1], at(p, 0))
		VPAND(absolute, t[1], s[0])
		next()
	})
	ADDQ(U32(8*line), w)
	ADDQ(xg, x)
	DECQ(ng)
	JNZ(LabelRef("group"))

	bcst(65<<23, t[0])
	VPCMPGTD(least, t[0], t[0])
	bcst(overflow, t[1])
	VPMAXUD(t[1], most, t[1])
	VPCMPEQD(t[1], most, t[1])
	VPOR(t[0], t[1], t[0])
	VPTEST(t[0], t[0])
	doubt := GP8()
	SETNE(doubt)
	Store(doubt, ReturnIndex(0))
	VZEROUPPER()
	RET()
}
