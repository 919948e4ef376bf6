// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contracttest

import (
	"fmt"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
)

// numbers: values over the whole range of BF16, subnormals, overflow, infinities and NaN included.
func numbers(t *testing.T, o samebit.Options) {
	r := seeded(41)
	shape := contract.Shape{Hidden: 48, Experts: 4, TopK: 2, Width: 32, SharedWidth: 17, NormTopK: true}
	// Exponents of weights, tokens and upstream gradients: from, and how many.
	for _, c := range []struct {
		name   string
		within [3][2]int
	}{
		{"every exponent", [3][2]int{{1, 254}, {1, 254}, {1, 254}}},
		{"tiny", [3][2]int{{0, 40}, {60, 30}, {0, 40}}},
		{"subnormal weights", [3][2]int{{0, 1}, {120, 16}, {0, 2}}},
		{"huge", [3][2]int{{127, 40}, {180, 60}, {200, 55}}},
		{"overflow", [3][2]int{{127, 4}, {127, 4}, {248, 7}}},
		{"wide", [3][2]int{{100, 54}, {100, 54}, {100, 54}}},
		{"cancelling", [3][2]int{{126, 2}, {126, 1}, {126, 1}}},
	} {
		w := weights(shape, 42)
		x, dy := tokens(40, shape, 43)
		exponents := func(v []contract.BF16, within [2]int) {
			for i := range v {
				v[i] = v[i]&0x807F | contract.BF16(within[0]+r.IntN(within[1]))<<7
				if r.IntN(50) == 0 {
					v[i] &= 0x8000
				}
			}
		}
		for e := range w.Experts {
			exponents(w.Experts[e].Gate, c.within[0])
			exponents(w.Experts[e].Up, c.within[0])
			exponents(w.Experts[e].Down, c.within[0])
		}
		exponents(x, c.within[1])
		exponents(dy, c.within[2])
		if c.name == "overflow" {
			for i := range 30 {
				dy[r.IntN(len(dy))] = []contract.BF16{0x7F80, 0xFF80, 0x7FC1}[i%3]
			}
		}
		open(t, o, shape, w).check(c.name, x, dy, nil)
	}
	gateValues(t, o)
}

// gateValues: all 2^16 BF16 values as gate, with a few ups, through SwiGLU. Each token's x has a value in its first place
// and one in its second; expert 0's gate takes the first, its up the second.
func gateValues(t *testing.T, o samebit.Options) {
	if testing.Short() {
		return
	}
	shape := contract.Shape{Hidden: 16, Experts: 1, TopK: 1, Width: 1, NormTopK: true}
	w := weights(shape, 44)
	clear(w.Router)
	e := &w.Experts[0]
	clear(e.Gate)
	clear(e.Up)
	e.Gate[0], e.Up[1] = 0x3F80, 0x3F80
	s := open(t, o, shape, w)
	for _, up := range []contract.BF16{0x3F80, 0xC0A3, 0x0001, 0x7F7F} {
		const n = 1 << 16
		x, dy := make([]contract.BF16, n*16), make([]contract.BF16, n*16)
		for g := range n {
			x[g*16], x[g*16+1], dy[g*16] = contract.BF16(g), up, 0x3F80
		}
		s.check(fmt.Sprintf("every gate value, up %04X", up), x, dy, nil)
	}
}
