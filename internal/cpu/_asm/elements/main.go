// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Command elements writes the vector kernels of package elements.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func arg(name string) reg.GPVirtual {
	return Load(Param(name), GP64()).(reg.GPVirtual)
}

func at(p reg.Register, disp int) Mem { return Mem{Base: p, Disp: disp} }

func words(name string, vals ...uint32) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i, v := range vals {
		DATA(4*i, U32(v))
	}
	return m
}

func main() {
	ConstraintExpr("amd64")
	elements()
	tree256()
	selectMask256()
	scans256()
	Generate()
}
