// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package tcdot

import (
	"testing"

	"github.com/samebit/samebit/contract"
)

// doubts change one row of x and one of w, of three groups and tops of 127. One binade or one unit lies between what is in doubt
// and what is not: a kernel's limit that moves changes its word on one of them.
var doubts = []struct {
	name           string
	direct, panels bool // in doubt
	spoil          func(x, w []contract.BF16)
}{
	{"none", false, false, func(x, w []contract.BF16) {}},
	{"zero input", true, false, func(x, w []contract.BF16) { clear(x[group : 2*group]) }},
	{"zero weights", true, false, func(x, w []contract.BF16) { clear(w[group : 2*group]) }},
	{"least sum", false, false, func(x, w []contract.BF16) { lowGroup(x, w, 65, 0) }},
	{"below the least sum", true, true, func(x, w []contract.BF16) { lowGroup(x, w, 64, 127) }},
	{"far below", true, true, func(x, w []contract.BF16) { lowGroup(x, w, 30, 127) }},
	// Sixteen products of 255*248 units of 2^11, and an accumulator: together 2^31-2^26, or the FP32 below.
	{"largest sum", true, true, func(x, w []contract.BF16) { highGroup(x, w, 127, 120, value(0, 124, 120)) }},
	{"below the largest sum", false, false, func(x, w []contract.BF16) {
		highGroup(x, w, 127, 120, value(0, 124, 120), value(1, 109, 0))
	}},
	// The sum that wraps the farthest: the largest accumulator, 24 ones, and the largest products.
	{"wrap", true, true, func(x, w []contract.BF16) {
		highGroup(x, w, 127, 127, value(0, 127, 127), value(0, 119, 127), value(0, 111, 127))
	}},
}

// lowGroup makes the second group's largest exponent sum, of weights, this field.
func lowGroup(x, w []contract.BF16, field, mantissa int) {
	for i := group; i < 2*group; i++ {
		x[i], w[i] = value(0, 127, 0), value(0, field, mantissa)
	}
}

// highGroup makes the second group's products alike and of field 127, and the accumulator before them the sum of acc.
func highGroup(x, w []contract.BF16, xMantissa, wMantissa int, acc ...contract.BF16) {
	clear(x[:group])
	clear(x[2*group:])
	for i := range group {
		w[i], w[2*group+i] = value(0, 127, 0), value(0, 127, 0)
		x[group+i], w[group+i] = value(0, 127, xMantissa), value(0, 127, wMantissa)
		if i < len(acc) {
			x[i], w[i] = value(0, 127, 0), acc[i]
		}
	}
	x[2*group] = value(0, 127, 0)
}

// eachDoubt calls do with each of the doubts, of either sign: in the second row of x and in row 5 of m rows of w.
func eachDoubt(m int, do func(name string, direct, panels bool, x [][]contract.BF16, w []contract.BF16)) {
	const k = 3 * group
	for _, d := range doubts {
		for sign := range contract.BF16(2) {
			row, w := make([]contract.BF16, k), make([]contract.BF16, m*k)
			for i := range row {
				row[i] = value(i%2, 127, i)
			}
			for i := range w {
				w[i] = value(i/7%2, 127, i%128)
			}
			x := append([]contract.BF16(nil), row...)
			d.spoil(x, w[5*k:6*k])
			for i := range x {
				x[i] ^= sign << 15
			}
			name := d.name
			if sign == 1 {
				name += ", negative"
			}
			do(name, d.direct, d.panels, [][]contract.BF16{row, x}, w)
		}
	}
}

// TestDirectDoubt: one group of one output that the direct path cannot answer for is a doubt, and nothing else is.
func TestDirectDoubt(t *testing.T) {
	for _, o := range directs(t) {
		eachDoubt(o.isa.lanes, func(name string, doubt, _ bool, x [][]contract.BF16, w []contract.BF16) {
			if _, fit, sure := direct(o, x, w, 0); !fit || sure == doubt {
				t.Errorf("%s, %s: fit %v, sure %v", o.isa.name, name, fit, sure)
			}
			testRows(t, o, x, w, 0, 0)
		})
	}
}

// TestDoubt: the same of panels, and of Go's path, which has whole numbers of 64 bits and so no largest sum.
func TestDoubt(t *testing.T) {
	for _, isa := range rungs() {
		o := NewWorker(isa)
		m := max(isa.lanes, tile)
		eachDoubt(m, func(name string, _, doubt bool, x [][]contract.BF16, w []contract.BF16) {
			var left Left
			left.Set(x)
			out := make([]float32, 2*m)
			o.Dot(out, m, &left, Rows(w, len(x[0]), Top(w)), 0, m, 0)
			have := o.flat.strip.bad[5]
			if isa.lanes > 0 {
				have = o.bad[1] != 0
			} else if name := name[:4]; name == "larg" || name == "wrap" {
				doubt = false
			}
			if have != doubt {
				t.Errorf("%s, %s: in doubt %v, want %v", isa.name, name, have, doubt)
			}
			testRows(t, o, x, w, 0, 0)
		})
	}
}
