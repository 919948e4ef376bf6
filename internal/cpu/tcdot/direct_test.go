// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package tcdot

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/samebit/samebit/contract"
)

// direct runs the direct path alone on all rows and the first 64 rows of w. It reports whether it took them.
func direct(o *Worker, x [][]contract.BF16, w []contract.BF16, segment int) (out []float32, fit, sure bool) {
	k := len(x[0])
	var left Left
	left.Set(x)
	lanes := o.isa.lanes
	out = poison(len(x) * lanes)
	p := &product{x: &left, r: pack(o, w, k).Rows(), out: out, stride: lanes, to: lanes, segment: segment}
	if !o.directFit(p, 0, len(x)) {
		return nil, false, false
	}
	return out, true, o.directOf(p, 0, len(x), 0)
}

// directs are the workers of the instruction sets that have the path here.
func directs(t *testing.T) []*Worker {
	var have []*Worker
	for _, isa := range rungs() {
		if isa.direct != nil {
			have = append(have, NewWorker(isa))
		}
	}
	if len(have) == 0 {
		t.Skip("no instruction set of this machine has the direct path")
	}
	return have
}

// TestDirect: ordinary operands pass without a doubt, and have the contract's bits.
func TestDirect(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, o := range directs(t) {
		for _, c := range []struct{ n, k, segment int }{{1, 2048, 0}, {2, 16, 0}, {3, 272, 0}, {4, 40, 0}, {0, 48, 16}, {2, 528, 128}, {1, 7, 0}} {
			if c.n == 0 {
				c.n = o.isa.directRows()
			}
			for _, scale := range []int{-12, 0, 30} {
				x, w := rowsOf(normal(c.n*c.k, 1), c.k), normal(o.isa.lanes*c.k, 0.02)
				for i, v := range w {
					w[i] = v ^ contract.BF16(r.IntN(2)<<15)
				}
				for _, row := range x {
					for i := range row {
						row[i] = contract.BF16(int(row[i]) + scale<<7)
					}
				}
				out, fit, sure := direct(o, x, w, c.segment)
				if !fit || !sure {
					t.Fatalf("%+v, 2^%d: fit %v, sure %v", c, scale, fit, sure)
				}
				for i := range x {
					for j := range o.isa.lanes {
						want := contract.TCDotSegments(x[i], w[j*c.k:][:c.k], max(c.segment, c.k*(1-min(c.segment, 1))))
						same(t, fmt.Sprintf("%+v, 2^%d", c, scale), i, j, out[i*o.isa.lanes+j], want)
					}
				}
			}
		}
	}
}

// TestDirectDoubt: one group of one output that the path cannot answer for is a doubt; without it there is none.
func TestDirectDoubt(t *testing.T) {
	const k = 3 * group
	for _, o := range directs(t) {
		for name, spoil := range map[string]func(x, w []contract.BF16){
			"none":         func(x, w []contract.BF16) {},
			"zero input":   func(x, w []contract.BF16) { clear(x[group : 2*group]) },
			"zero weights": func(x, w []contract.BF16) { clear(w[group : 2*group]) },
			"far below": func(x, w []contract.BF16) {
				for i := range group {
					x[group+i] -= 40 << 7
					w[group+i] -= 40 << 7
				}
			},
			// An accumulator just below 2^(M+1), then sixteen of the largest products.
			"wrap": func(x, w []contract.BF16) {
				clear(x[1:group])
				x[0], w[0] = value(0, 127, 0), value(0, 125, 127)
				for i := group; i < k; i++ {
					x[i], w[i] = value(0, 127, 127), value(0, 125, 127)
				}
			},
		} {
			x, w := normal(k, 1), normal(o.isa.lanes*k, 0.02)
			spoil(x, w[5*k:6*k])
			_, fit, sure := direct(o, [][]contract.BF16{normal(k, 1), x}, w, 0)
			if !fit || sure != (name == "none") {
				t.Errorf("%s: fit %v, sure %v", name, fit, sure)
			}
			testRows(t, o, [][]contract.BF16{normal(k, 1), x}, w, 0, 0)
		}
	}
}

// TestDirectDomain: tops on both sides of every limit, groups far below them, and the bits of what is taken.
func TestDirectDomain(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	took := 0
	for _, o := range directs(t) {
		for range 1500 {
			a := []int{directMinX, minTop, 127, 200, maxTop}[r.IntN(5)] + r.IntN(7) - 3
			b := []int{directMinW, directMaxW, 120}[r.IntN(3)] + r.IntN(7) - 3
			if r.IntN(4) == 0 {
				a = maxPair - b + r.IntN(7) - 3
			}
			a = min(a, maxTop)
			k := []int{16, 17, 33, 48, 80}[r.IntN(5)]
			x := [][]contract.BF16{below(r, k, a), below(r, k, min(a+r.IntN(2), maxTop))}
			w := below(r, o.isa.lanes*k, b)
			out, fit, sure := direct(o, x, w, 0)
			inside := b >= directMinW && b <= directMaxW
			for _, row := range x {
				inside = inside && Top(row) >= directMinX && fast(Top(row), b)
			}
			if fit != inside {
				t.Fatalf("tops %d and %d: taken %v, want %v", a, b, fit, inside)
			}
			if !sure {
				continue
			}
			took++
			for i := range x {
				for j := range o.isa.lanes {
					same(t, fmt.Sprintf("tops %d and %d", a, b), i, j, out[i*o.isa.lanes+j], contract.TCDot(x[i], w[j*k:][:k]))
				}
			}
		}
	}
	if took < 100 {
		t.Errorf("only %d products passed without a doubt", took)
	}
}
