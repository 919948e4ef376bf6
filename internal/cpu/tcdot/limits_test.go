// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package tcdot

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/samebit/samebit/contract"
)

// Limits are literals here: ones taken from the code would move with it.

// TestDirectFit: each limit of the direct path, and the next beyond it.
func TestDirectFit(t *testing.T) {
	rows := map[string]int{"avx512bf16": 16, "avx512": 4, "avx2": 4}
	for _, o := range directs(t) {
		most := rows[o.isa.name]
		type operands struct{ n, k, x, w int }
		check := func(what string, c operands, want bool, change func(p *product)) {
			t.Helper()
			p := &product{x: &Left{k: c.k}, r: Right{top: c.w, packed: []*Packed{{}}}}
			for range c.n {
				p.x.top = append(p.x.top, c.x)
			}
			change(p)
			if have := o.directFit(p, 0, c.n); have != want {
				t.Errorf("%s, %s %+v: taken %v, want %v", o.isa.name, what, c, have, want)
			}
		}
		same := func(*product) {}
		for _, c := range []struct {
			operands
			want bool
		}{
			{operands{most, 32, 127, 120}, true}, {operands{most + 1, 32, 127, 120}, false},
			{operands{1, 1 << 15, 127, 120}, true}, {operands{1, 1<<15 + 1, 127, 120}, false},
			{operands{1, 32, 80, 120}, true}, {operands{1, 32, 79, 120}, false},
			{operands{1, 32, 127, 96}, true}, {operands{1, 32, 127, 95}, false},
			{operands{1, 32, 127, 135}, true}, {operands{1, 32, 127, 136}, false},
			{operands{1, 32, 96, 96}, true}, {operands{1, 32, 95, 96}, false},
			{operands{1, 32, 219, 135}, true}, {operands{1, 32, 220, 135}, false},
			{operands{1, 32, 254, 100}, true}, {operands{1, 32, 255, 99}, false},
		} {
			check("limit", c.operands, c.want, same)
		}
		ordinary := operands{2, 32, 127, 120}
		check("not packed", ordinary, false, func(p *product) { p.r.packed = nil })
		check("columns", ordinary, false, func(p *product) { p.r.columns = true })
		check("added", ordinary, false, func(p *product) { p.add = true })
		check("one low row", ordinary, false, func(p *product) { p.x.top[1] = 79 })
	}
}

// TestDirectDomain: tops about every limit, groups far below them, and the bits of what is taken.
func TestDirectDomain(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	took := 0
	for _, o := range directs(t) {
		for range 1500 {
			a := []int{80, 64, 127, 200, 254}[r.IntN(5)] + r.IntN(7) - 3
			b := []int{96, 135, 120}[r.IntN(3)] + r.IntN(7) - 3
			if r.IntN(4) == 0 {
				a = 354 - b + r.IntN(7) - 3
			}
			a = min(a, 254)
			k := []int{16, 17, 33, 48, 80}[r.IntN(5)]
			x := [][]contract.BF16{below(r, k, a), below(r, k, min(a+r.IntN(2), 254))}
			w := below(r, o.isa.lanes*k, b)
			out, fit, sure := direct(o, x, w, 0)
			inside := b >= 96 && b <= 135
			for _, row := range x {
				inside = inside && Top(row) >= 80 && Top(row)+b >= 192 && Top(row)+b <= 354
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

// TestDirectZeros: zeros of x against the largest weight, in the row of the lowest top, while accumulator and products lie below
// what a zero's field of 0 comes to. Taken for a product, such a zero would cut them.
func TestDirectZeros(t *testing.T) {
	for _, o := range directs(t) {
		for low := 40; low <= 66; low++ {
			x := make([]contract.BF16, 32)
			x[0], x[1] = value(0, 80, 0), value(0, 66, 85)
			var w []contract.BF16
			for range o.isa.lanes {
				row := make([]contract.BF16, 32)
				row[0], row[1] = value(0, low, 127), value(0, low, 127)
				row[20] = value(0, 135, 127)
				w = append(w, row...)
			}
			testRows(t, o, [][]contract.BF16{x}, w, 0, 0)
		}
	}
}

// TestDirectLength: the longest rows that are taken, and ones so long that with them weights would be scaled down and a zero's
// field wrap. Products are the largest, and the last groups' weights zeros but for one.
func TestDirectLength(t *testing.T) {
	for _, o := range directs(t) {
		for _, k := range []int{1 << 15, 1 << 17} {
			x, row := make([]contract.BF16, k), make([]contract.BF16, k)
			for i := range x {
				x[i], row[i] = value(0, 127, 127), value(0, 135, 127)
				if i < group {
					x[i] = value(0, 127, 0) // sixteen of the largest alone would be in doubt
				}
				if i >= k-64*group && i%group > 0 {
					row[i] = 0
				}
			}
			var w []contract.BF16
			for range o.isa.lanes {
				w = append(w, row...)
			}
			want := contract.TCDot(x, row)
			out, fit, sure := direct(o, [][]contract.BF16{x}, w, 0)
			if inside := k == 1<<15; fit != inside || sure != inside {
				t.Fatalf("%s, %d long: taken %v, sure %v", o.isa.name, k, fit, sure)
			}
			if !fit {
				var left Left
				left.Set([][]contract.BF16{x})
				out = poison(o.isa.lanes)
				o.Dot(out, o.isa.lanes, &left, pack(o, w, k).Rows(), 0, o.isa.lanes, 0)
			}
			for j, v := range out {
				same(t, fmt.Sprint(o.isa.name, " ", k, " long"), 0, j, v, want)
			}
		}
	}
}
