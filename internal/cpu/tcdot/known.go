// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package tcdot

import (
	"fmt"
	"math"
	"slices"

	"github.com/samebit/samebit/contract"
)

// known are products, and what the law that was measured on an H200 gives for them (R1, R2). Every other law that the tests know
// fails at least one.
var known = []struct {
	a, b    []contract.BF16
	segment int
	want    uint32
}{
	// 1 + 15 * 2^-26 is cut to 1: each small term by itself, toward zero.
	{terms(0x3F80, 0x3280, 15), unity(16), 0, 0x3F800000},
	// The same from the other end: a group is all 16 at once.
	{append(terms(0x3280, 0x3280, 14), 0x3F80), unity(16), 0, 0x3F800000},
	// 1 - 2^-27 is 1 - 0: a negative term is cut toward zero too.
	{terms(0x3F80, 0xB280, 1), terms(0x3F80, 0x3F00, 1), 0, 0x3F800000},
	// 1 + 2^-24 + 2^-24 is exact; the sum is cut to 24 bits only once.
	{terms(0x3F80, 0x3380, 2), unity(3), 0, 0x3F800001},
	// Terms keep bits down to 2^-25.
	{terms(0x3F80, 0x3300, 4), unity(5), 0, 0x3F800001},
	// Sixteen of the largest significands.
	{terms(0x3FFF, 0x3FFF, 15), terms(0x3FFF, 0x3FFF, 15), 0, 0x427E0100},
	// 1, and then a group of 16 * 2^-26: the accumulator's exponent is among those that cut it away.
	{slices.Concat(terms(0x3F80, 0, 15), terms(0x3280, 0x3280, 15)), unity(32), 0, 0x3F800000},
	// As segments, each begins at +0 and the sum is rounded to nearest: 1 + 15 * 2^-26 is nearer to 1 + 2^-22.
	{slices.Concat(terms(0x3F80, 0, 15), terms(0x3280, 0x3280, 14)), unity(31), 16, 0x3F800002},
	// An accumulator of 15 * 2^-26 is cut to 7 * 2^-25 by the 1 that follows, and the sum toward zero.
	{slices.Concat(terms(0x3280, 0x3280, 14), terms(0, 0x3F80, 1)), unity(17), 0, 0x3F800001},
	// Three groups, which are more than one chunk: 1, 1 + 2^-23, and less 2^-25 cut to 1. A sum of either sign goes toward zero.
	{slices.Concat(terms(0x3F80, 0, 15), terms(0x3380, 0x3380, 1), terms(0, 0, 13), terms(0xB300, 0, 15)), unity(48), 0, 0x3F800000},
	{slices.Concat(terms(0xBF80, 0, 15), terms(0xB380, 0xB380, 1), terms(0, 0, 13), terms(0x3300, 0, 15)), unity(48), 0, 0xBF800000},
}

// terms is first, and then n times rest.
func terms(first, rest contract.BF16, n int) []contract.BF16 {
	return append([]contract.BF16{first}, slices.Repeat([]contract.BF16{rest}, n)...)
}

// unity is n times 1.
func unity(n int) []contract.BF16 { return terms(0x3F80, 0x3F80, n-1) }

// LawError is a known answer that was not given.
type LawError struct {
	By         string // who should have
	Have, Want uint32
}

func (e *LawError) Error() string {
	return fmt.Sprintf("tcdot: %s gives %08X, the law (R1) %08X", e.By, e.Have, e.Want)
}

// Prove has the contract's own code and every kernel of the instruction set give the known answers, each in every place of a panel
// and for few rows and many (R14). A fold has no kernel that columns of segments have not. Its error is a LawError.
func Prove(s *ISA) error {
	o, m := NewWorker(s), max(s.lanes, tile)
	for _, x := range known {
		k := len(x.a)
		check := func(by string, have []float32) error {
			for _, v := range have {
				if b := math.Float32bits(v); b != x.want {
					return &LawError{by, b, x.want}
				}
			}
			return nil
		}
		if err := check("the contract's code", []float32{contract.TCDotSegments(x.a, x.b, max(x.segment, k*(1-min(x.segment, 1))))}); err != nil {
			return err
		}
		rows := slices.Repeat(x.b, m)
		var columns []contract.BF16
		for _, v := range x.b {
			columns = append(columns, slices.Repeat([]contract.BF16{v}, m)...)
		}
		rights := []Right{Rows(rows, k, Top(rows)), Columns(m, Top(rows), columns)}
		if s.lanes > 0 {
			pack := func(w []contract.BF16, k int) *Packed { return o.Pack(w, k, make([]uint32, s.Words(len(w)/k, k))) }
			rights = append(rights, pack(rows, k).Rows(), PackedColumns(pack(columns, m)))
		}
		// One row and a few, which packed rows take directly, and too many for that.
		for _, n := range []int{1, 3, rowBlock} {
			var left Left
			left.Set(slices.Repeat([][]contract.BF16{x.a}, n))
			for _, r := range rights {
				out := make([]float32, n*m)
				o.Dot(out, m, &left, r, 0, m, x.segment)
				if err := check("code of "+s.name, out); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
