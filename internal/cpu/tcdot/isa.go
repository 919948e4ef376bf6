// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package tcdot

import "slices"

// ISA is one instruction set's kernels. The zero value is Go alone.
type ISA struct {
	name        string
	lanes       int                                                                        // outputs of a panel
	bf16        bool                                                                       // direct reads the left operand as BF16, otherwise as FP32
	direct      func(w *uint32, ng int, x *byte, xg int, acc *float32, n int) (doubt bool) // nil where there is none
	core        func(panel, x *byte, xg int, acc *float32, n, ng int, bad *byte)
	transpose   func(w *uint16, stride int, buf *uint32)
	tile        func(src *uint32, stride int, dst *uint32, apart int)
	expandPairs func(buf *uint32, np int, panel *byte, scale, base uint32, next uintptr, stride int)
	expandRows  func(w *uint16, stride, ahead, nk int, panel *byte, scale, base uint32)
	finish      [4]func(acc, scale, out *float32, stride, n int) // +1: add, +2: the order of expandRows
}

// Go is the portable one.
var Go = &ISA{name: "go"}

// Sets are those that this machine can run, the best first and Go last.
func Sets() []*ISA { return append(slices.Clone(found), Go) }

// Name is avx512bf16, avx512, avx2 or go. Names of one width of vectors begin alike.
func (s *ISA) Name() string { return s.name }

// stride is a panel's bytes for one k.
func (s *ISA) stride() int { return 5 * s.lanes }
