// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// elements are the kernels that take each element by itself, 16 at a time. No multiply-add is ever fused.
func elements() {
	for _, l := range sets {
		l.swiglu()
		l.swigluBackward()
		l.addScaled("addScaled", false)
		l.addScaled("foldRouter", true)
		l.roundRow()
		l.expShift()
	}
}

// kernel opens the function name of one instruction set.
func (l lanes) kernel(name, args, doc string) {
	TEXT(fmt.Sprintf("%s%d", name, l.bits), NOSPLIT, "func("+args+")")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s%d %s; n is a positive multiple of 16.", name, l.bits, doc))
}

// loop runs body for each 16 of n elements; in takes a pointer's 16 elements of a size.
func (l lanes) loop(body func(in func(p reg.GPVirtual, size uint8) Mem)) {
	n, i := arg("n"), GP64()
	XORQ(i, i)
	Label("next")
	body(func(p reg.GPVirtual, size uint8) Mem { return Mem{Base: p, Index: i, Scale: size} })
	ADDQ(U32(16), i)
	CMPQ(i, n)
	JLT(LabelRef("next"))
	VZEROUPPER()
	RET()
}

// ends are what exp's argument is kept between. Beyond them, and for some way before, 2^n over- or underflows by itself.
type ends struct{ low, high, one v16 }

func (l lanes) ends() ends { return ends{l.same(0xC3000000), l.same(0x43000000), l.same(0x3F800000)} }

// exp is R4's e^x, step by step. x is lost. A NaN stays one.
func (l lanes) exp(x v16, e ends) v16 {
	// The instructions give their first operand, here x, where either is NaN.
	l.op(VMINPS, x, e.high, x)
	l.op(VMAXPS, x, e.low, x)
	n, t, p := l.new(), l.new(), l.new()
	l.mulc(1.44269504, x, n)
	const even = 8 // to nearest, ties to even
	if l.wide() {
		l.imm(VRNDSCALEPS, even, n, n)
	} else {
		l.imm(three(VROUNDPS), even, n, n)
	}
	l.mulc(0.693359375, n, t)
	l.op(VSUBPS, t, x, x)
	l.mulc(-2.12194440e-4, n, t)
	l.op(VSUBPS, t, x, x)
	l.mulc(1.9875691500e-4, x, p)
	l.op(VMULPS, x, x, t)
	for i, c := range []float32{1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1} {
		if i > 0 {
			l.op(VMULPS, x, p, p)
		}
		l.addc(c, p, p)
	}
	l.op(VMULPS, t, p, p)
	l.op(VADDPS, x, p, p)
	l.op(VADDPS, e.one, p, p)
	if l.wide() {
		// Two factors round once, since p times the first one is normal; so does this.
		VSCALEFPS(n[0], p[0], p[0])
		return p
	}
	// The first factor goes into p's exponent.
	for i := range n {
		VCVTPS2DQ(n[i], n[i])
	}
	l.imm(VPSRAD, 1, n, t)
	l.op(VPSUBD, t, n, n)
	l.imm(VPSLLD, 23, t, t)
	l.op(VPADDD, t, p, p)
	l.imm(VPSLLD, 23, n, n)
	l.op(VPADDD, e.one, n, n)
	l.op(VMULPS, n, p, p)
	return p
}

// denominator is 1 + e^-g.
func (l lanes) denominator(g Mem, sign v16, e ends) v16 {
	x := l.new()
	for i := range x {
		if l.wide() {
			VPXORD(l.part(g, i, 4), sign[i], x[i])
		} else {
			VPXOR(l.part(g, i, 4), sign[i], x[i])
		}
	}
	d := l.exp(x, e)
	l.op(VADDPS, e.one, d, d)
	return d
}

func (l lanes) swiglu() {
	l.kernel("swiglu", "h *uint16, gate, up *float32, n int", "is R6's h")
	h, g, u := arg("h"), arg("gate"), arg("up")
	sign, nan, e := l.same(0x80000000), l.same(0x7FC0), l.ends()
	l.loop(func(in func(reg.GPVirtual, uint8) Mem) {
		d := l.denominator(in(g, 4), sign, e)
		s := l.load(in(g, 4))
		l.op(VDIVPS, d, s, s)
		l.mem(VMULPS, in(u, 4), s, s)
		l.round(s, nan)
		l.narrow(s, in(h, 2))
	})
}

func (l lanes) swigluBackward() {
	l.kernel("swigluBackward", "dg, du, hw *uint16, terms, gate, up, q *float32, w float32, n int",
		"is R8's part of each element of a row")
	dg, du, hw, terms, g, u, q := arg("dg"), arg("du"), arg("hw"), arg("terms"), arg("gate"), arg("up"), arg("q")
	w, sign, nan, e := l.sameFloat("w"), l.same(0x80000000), l.same(0x7FC0), l.ends()
	l.loop(func(in func(reg.GPVirtual, uint8) Mem) {
		d := l.denominator(in(g, 4), sign, e)
		silu := l.load(in(g, 4))
		l.op(VDIVPS, d, silu, silu)
		s := l.new()
		l.op(VDIVPS, d, e.one, s)

		h := l.new()
		l.mem(VMULPS, in(u, 4), silu, h)
		l.round(h, nan)
		l.imm(VPSLLD, 16, h, h)
		t := l.new()
		l.mem(VMULPS, in(q, 4), h, t)
		l.store(t, in(terms, 4))
		l.op(VMULPS, w, h, h)
		l.round(h, nan)
		l.narrow(h, in(hw, 2))

		dh := l.new()
		l.mem(VMULPS, in(q, 4), w, dh)
		l.op(VMULPS, dh, silu, silu)
		l.round(silu, nan)
		l.narrow(silu, in(du, 2))

		// slope = s * (1 + g*(1-s))
		slope := l.new()
		l.op(VSUBPS, s, e.one, slope)
		l.mem(VMULPS, in(g, 4), slope, slope)
		l.op(VADDPS, e.one, slope, slope)
		l.op(VMULPS, s, slope, slope)
		l.mem(VMULPS, in(u, 4), dh, dh)
		l.op(VMULPS, slope, dh, dh)
		l.round(dh, nan)
		l.narrow(dh, in(dg, 2))
	})
}

func (l lanes) addScaled(name string, fold bool) {
	doc := "adds by times v"
	if fold {
		doc += ", a NaN being 0x7FFFFFFF"
	}
	l.kernel(name, "sum *float32, by float32, v *uint16, n int", doc)
	sum, v, by := arg("sum"), arg("v"), l.sameFloat("by")
	var nan v16
	if fold {
		nan = l.same(0x7FFFFFFF)
	}
	l.loop(func(in func(reg.GPVirtual, uint8) Mem) {
		t := l.widen(in(v, 2))
		l.op(VMULPS, by, t, t)
		l.mem(VADDPS, in(sum, 4), t, t)
		if fold {
			l.whereNaN(t, t, nan, func() {})
		}
		l.store(t, in(sum, 4))
	})
}

func (l lanes) roundRow() {
	l.kernel("round", "dst *uint16, src *float32, n int", "casts to BF16")
	dst, src, nan := arg("dst"), arg("src"), l.same(0x7FC0)
	l.loop(func(in func(reg.GPVirtual, uint8) Mem) {
		v := l.load(in(src, 4))
		l.round(v, nan)
		l.narrow(v, in(dst, 2))
	})
}

func (l lanes) expShift() {
	l.kernel("expShift", "u, l *float32, max float32, n int", "is e^(l-max), a NaN being 0x7FFFFFFF")
	u, in0, most := arg("u"), arg("l"), l.sameFloat("max")
	nan, e := l.same(0x7FFFFFFF), l.ends()
	l.loop(func(in func(reg.GPVirtual, uint8) Mem) {
		x := l.load(in(in0, 4))
		l.op(VSUBPS, most, x, x)
		p := l.exp(x, e)
		l.whereNaN(p, p, nan, func() {})
		l.store(p, in(u, 4))
	})
}
