// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Command tcdot writes the vector kernels of package tcdot.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// expMask selects the exponent field of an FP32.
const (
	expMask  = 0x7F800000
	overflow = 0x7C000000 // 2^31-2^26: below it a 17-term sum cannot have wrapped
	overf32  = 0x4EF80000 // the same as FP32
)

var zs = []reg.VecPhysical{
	reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7,
	reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
	reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23,
	reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
}

var ys = []reg.VecPhysical{
	reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7,
	reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15,
}

func arg(name string) reg.GPVirtual {
	return Load(Param(name), GP64()).(reg.GPVirtual)
}

func at(p reg.Register, disp int) Mem { return Mem{Base: p, Disp: disp} }

func byN(p, i reg.Register, disp int) Mem {
	return Mem{Base: p, Index: i, Scale: 1, Disp: disp}
}

func words(name string, vals ...uint32) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i, v := range vals {
		DATA(4*i, U32(v))
	}
	return m
}

// bcst puts one 32-bit pattern in every lane of z or y.
func bcst(v uint32, dst reg.VecPhysical) {
	r := GP32()
	MOVL(U32(v), r)
	bcstReg(r, dst)
}

func bcstReg(r reg.GPVirtual, dst reg.VecPhysical) {
	if dst.Size() == 64 {
		VPBROADCASTD(r, dst)
		return
	}
	VMOVD(r, dst.AsX())
	VPBROADCASTD(dst.AsX(), dst)
}

func main() {
	ConstraintExpr("amd64")
	core512()
	directConstants()
	direct512(false)
	direct512(true)
	transpose512()
	tile512()
	expandPairs512()
	expandRows512()
	finish512()
	core256()
	direct256()
	transpose256()
	tile256()
	expandPairs256()
	expandRows256()
	finish256()
	packSpread256()
	packDirect256(false)
	packDirect256(true)
	rowMax256()
	Generate()
}
