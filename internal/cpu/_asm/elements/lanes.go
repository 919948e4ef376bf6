// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// lanes is an instruction set's way to hold 16 numbers of 32 bits: in one register of AVX-512, or in two of AVX2.
type lanes struct{ bits int }

var sets = []lanes{{512}, {256}}

// v16 is 16 numbers.
type v16 []reg.VecVirtual

func (l lanes) wide() bool { return l.bits == 512 }

func (l lanes) new() v16 {
	if l.wide() {
		return v16{ZMM()}
	}
	return v16{YMM(), YMM()}
}

// part is the part of 16 numbers in memory that register i holds; size is a number's bytes there.
func (l lanes) part(m Mem, i, size int) Mem {
	m.Disp += i * 8 * size
	return m
}

// same is v in every lane, in one register; both of AVX2's may read it.
func (l lanes) same(v uint32) v16 {
	r := GP32()
	MOVL(U32(v), r)
	if l.wide() {
		z := ZMM()
		VPBROADCASTD(r, z)
		return v16{z}
	}
	y := YMM()
	VMOVD(r, y.AsX())
	VPBROADCASTD(y.AsX(), y)
	return v16{y, y}
}

func (l lanes) sameFloat(name string) v16 {
	a, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	v := l.new()
	VBROADCASTSS(a.Addr, v[0])
	return v16{v[0], v[0]}[:len(v)]
}

type instruction = func(...Op)

func three(f func(a, b, c Op)) instruction { return func(o ...Op) { f(o[0], o[1], o[2]) } }

// op is out = b op a in the order of Go's assembler, that is with the operands a, b, out.
func (l lanes) op(f instruction, a, b, out v16) {
	for i := range out {
		f(a[i], b[i], out[i])
	}
}

// imm is op of one operand and an immediate.
func (l lanes) imm(f instruction, n uint64, a, out v16) {
	for i := range out {
		f(Imm(n), a[i], out[i])
	}
}

// mem is op whose a is 16 FP32 in memory.
func (l lanes) mem(f instruction, a Mem, b, out v16) {
	for i := range out {
		f(l.part(a, i, 4), b[i], out[i])
	}
}

// constants in memory, each 8 times.
var constants = map[uint32]Mem{}

// con is op whose a is a constant. AVX-512 reads it once and spreads it, with f512.
func (l lanes) con(f256, f512 instruction, a uint32, b, out v16) {
	m, ok := constants[a]
	if !ok {
		m = words(fmt.Sprintf("all%08x", a), a, a, a, a, a, a, a, a)
		constants[a] = m
	}
	if l.wide() {
		f512(m, b[0], out[0])
		return
	}
	for i := range out {
		f256(m, b[i], out[i])
	}
}

func (l lanes) mulc(c float32, b, out v16) {
	l.con(VMULPS, VMULPS_BCST, math.Float32bits(c), b, out)
}

func (l lanes) addc(c float32, b, out v16) {
	l.con(VADDPS, VADDPS_BCST, math.Float32bits(c), b, out)
}

// load is 16 FP32.
func (l lanes) load(m Mem) v16 {
	v := l.new()
	for i := range v {
		VMOVUPS(l.part(m, i, 4), v[i])
	}
	return v
}

func (l lanes) store(v v16, m Mem) {
	for i := range v {
		VMOVUPS(v[i], l.part(m, i, 4))
	}
}

// widen is 16 BF16 as FP32.
func (l lanes) widen(m Mem) v16 {
	v := l.new()
	for i := range v {
		VPMOVZXWD(l.part(m, i, 2), v[i])
	}
	l.imm(VPSLLD, 16, v, v)
	return v
}

// whereNaN puts by where v is NaN; v is the number that is tested, and of is the one that is changed.
func (l lanes) whereNaN(v v16, of v16, by v16, change func()) {
	const unordered = 3
	if l.wide() {
		k := K()
		VCMPPS(Imm(unordered), v[0], v[0], k)
		change()
		VMOVDQA32(by[0], k, of[0])
		return
	}
	is := l.new()
	for i := range v {
		VCMPPS(Imm(unordered), v[i], v[i], is[i])
	}
	change()
	for i := range v {
		VBLENDVPS(is[i], by[i], of[i], of[i])
	}
}

// round casts v to BF16, in the low halves of its lanes: to nearest, ties to even; a NaN gives nan, which is 0x7FC0.
func (l lanes) round(v, nan v16) {
	l.whereNaN(v, v, nan, func() {
		t := l.new()
		l.imm(VPSRLD, 16, v, t)
		if l.wide() {
			l.con(nil, VPANDD_BCST, 1, t, t)
		} else {
			l.con(three(VPAND), nil, 1, t, t)
		}
		l.con(VPADDD, VPADDD_BCST, 0x7FFF, v, v)
		l.op(VPADDD, t, v, v)
		l.imm(VPSRLD, 16, v, v)
	})
}

// narrow stores the low halves of v's lanes, the high ones being zero. v is lost.
func (l lanes) narrow(v v16, m Mem) {
	if l.wide() {
		VPMOVDW(v[0], v[0].AsY())
	} else {
		VPACKUSDW(v[1], v[0], v[0])
		VPERMQ(Imm(0xD8), v[0], v[0]) // packing goes by halves of a register
	}
	VMOVDQU(v[0].AsY(), m)
}
