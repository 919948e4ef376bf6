// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package tcdot

import (
	"math/rand/v2"
	"testing"

	"github.com/samebit/samebit/contract"
)

// The fast path's doubts: each must go to the contract, and what is just inside must be right.

func value(sign, exponent, mantissa int) contract.BF16 {
	return contract.BF16(sign<<15 | min(max(exponent, 0), 254)<<7 | mantissa)
}

// TestWrap: an accumulator just below 2^(M+1), then sixteen products that are the largest of their exponents or nearly: the
// sum passes 2^31 units, or stays just below.
func TestWrap(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, isa := range rungs() {
		o := NewWorker(isa)
		for range 300 {
			top, sign := 120+r.IntN(10), r.IntN(2)
			row := make([]contract.BF16, group, 4*group)
			row[r.IntN(group)] = value(sign, top, r.IntN(2))
			for range 1 + r.IntN(3) {
				lower := r.IntN(4)
				for i := range group {
					m := 127
					if i < lower {
						m -= r.IntN(4)
					}
					row = append(row, value(sign, top, m))
				}
			}
			w := make([]contract.BF16, 3*len(row))
			for i := range w {
				w[i] = value(0, 125, 127-r.IntN(2)*r.IntN(2))
			}
			testRows(t, o, [][]contract.BF16{row, row}, w, 0, 0)
		}
	}
}

// TestTop: the largest exponent field, with or without a tail behind whole vectors. Zeros have that of 1, so that the fast path
// takes them.
func TestTop(t *testing.T) {
	for _, n := range []int{1, 15, 16, 17, 40} {
		for _, at := range []int{0, n / 2, n - 1} {
			for v, want := range map[contract.BF16]int{0: 127, 0x8000: 127, 1: 1, 0x807F: 1, 0x0080: 1, 0xBFFF: 127, 0x7F7F: 254, 0x7F80: 255, 0xFFC0: 255} {
				w := make([]contract.BF16, n)
				w[at] = v
				if have := Top(w); have != want {
					t.Errorf("%04X at %d of %d: top %d, want %d", v, at, n, have, want)
				}
			}
		}
	}
}

// TestFast: each limit of the fast path, and the next beyond it.
func TestFast(t *testing.T) {
	for _, c := range []struct {
		x, w int
		want bool
	}{
		{64, 128, true}, {63, 129, false}, {128, 64, true}, {129, 63, false}, // either top
		{96, 96, true}, {96, 95, false}, {177, 177, true}, {177, 178, false}, // their sum
		{254, 100, true}, {255, 99, false}, {100, 254, true}, {99, 255, false}, // finite
	} {
		if have := fast(c.x, c.w); have != c.want {
			t.Errorf("tops %d and %d: %v, want %v", c.x, c.w, have, c.want)
		}
	}
}

// TestDomain: tops on both sides of every limit of the fast path, and values far below them.
func TestDomain(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, isa := range rungs() {
		o := NewWorker(isa)
		for range 1500 {
			a, b := tops(r)
			n := []int{16, 17, 33, 48, 80}[r.IntN(5)]
			x := [][]contract.BF16{below(r, n, a), below(r, n, a), below(r, n, a+r.IntN(3)-1)}
			w := below(r, 3*n, b)
			testRows(t, o, x, w, 0, 0)
		}
	}
}

// tops are two exponent fields near a limit: of one operand, or of the two together.
func tops(r *rand.Rand) (a, b int) {
	for {
		near := r.IntN(13) - 8
		switch r.IntN(4) {
		case 0:
			a, b = 64+near, 192-64+r.IntN(9)-4
		case 1:
			a = 64 + r.IntN(192-2*64)
			b = 192 - a + near
		case 2:
			a = 110 + r.IntN(130)
			b = 354 - a - near
		case 3:
			a, b = 1+r.IntN(254), 1+r.IntN(254)
		}
		if r.IntN(2) == 0 {
			a, b = b, a
		}
		if a > 0 && b > 0 && a < 255 && b < 255 {
			return a, b
		}
	}
}

// below is n values of which the largest has the exponent field top, and the others lie down to twice as far below as the
// kernels' bytes reach; some groups have only such.
func below(r *rand.Rand, n, top int) []contract.BF16 {
	v := make([]contract.BF16, n)
	reach := []int{1, 3, 31, 33, 62, 63, 64, 126}[r.IntN(8)]
	far := r.IntN(2) == 0
	for i := range v {
		down := r.IntN(reach + 1)
		if far && i/group%2 == 1 {
			down = reach
		}
		v[i] = value(r.IntN(2), top-down, r.IntN(128))
		if r.IntN(12) == 0 {
			v[i] &= 0x8000
		}
	}
	v[r.IntN(n)] = value(r.IntN(2), top, 127)
	return v
}
