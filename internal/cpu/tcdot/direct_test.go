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
