// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package tcdot

import "golang.org/x/sys/cpu"

//go:generate go -C ../_asm run ./tcdot -out ../tcdot/kernels_amd64.s -stubs ../tcdot/kernels_amd64.go -pkg tcdot

var avx512 = &ISA{
	"avx512", 64, false, direct512, core512, transpose512, tile512, expandPairs512, expandRows512,
	[4]func(acc, scale, out *float32, stride, n int){finish512Set, finish512Add, finish512ZipSet, finish512ZipAdd},
}

// avx512BF16 is avx512 with the instructions on BF16, which not every machine of AVX-512 has.
var avx512BF16 = func() *ISA {
	s := *avx512
	s.name, s.bf16, s.direct = "avx512bf16", true, direct512BF16
	return &s
}()

var avx2 = &ISA{
	"avx2", 32, false, direct256, core256, transpose256, tile256, expandPairs256, expandRows256,
	[4]func(acc, scale, out *float32, stride, n int){finish256Set, finish256Add, finish256ZipSet, finish256ZipAdd},
}

// found asks x/sys/cpu, which knows whether the system saves the registers.
var found = func() (sets []*ISA) {
	x := cpu.X86
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
		if x.HasAVX512BF16 {
			sets = append(sets, avx512BF16)
		}
		sets = append(sets, avx512)
	}
	if x.HasAVX2 {
		sets = append(sets, avx2)
	}
	return sets
}()

// The left operand's forms serve every set: the layout of a row has no lanes.
func packSpread(x *uint16, ng int, dst *byte, xg int, scale, base uint32) {
	packSpread256(x, ng, dst, xg, scale, base)
}

func packFloats(x *uint16, ng int, dst *byte, xg int, scale, base uint32) {
	packFloats256(x, ng, dst, xg, scale, base)
}

func packPairs(x *uint16, ng int, dst *byte, xg int, scale, base uint32) {
	packPairs256(x, ng, dst, xg, scale, base)
}

func largest(x []uint16) uint32 {
	var m uint32
	if n := len(x) / 16; n > 0 && cpu.X86.HasAVX2 {
		m = rowMax256(&x[0], n)
		x = x[16*n:]
	}
	return max(m, largestGo(x))
}
