// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package tcdot

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/samebit/samebit/contract"
)

// TestPart: some of the outputs, from the start of a panel to anywhere in one, of rows in one block and in two whose tops differ. Each
// output is right, and nothing is written between the rows of outputs or behind the last.
func TestPart(t *testing.T) {
	const k, m, gap = 48, 130, 3
	for _, isa := range rungs() {
		o := NewWorker(isa)
		w := normal(m*k, 0.02)
		columns := slices.Concat(transposed(rowsOf(w, k))...)
		rights := []Right{Rows(w, k, Top(w)), Columns(m, Top(w), columns)}
		if p := pack(o, w, k); p != nil {
			rights = append(rights, p.Rows(), PackedColumns(pack(o, columns, m)))
		}
		for _, n := range []int{1, 3, 4, 5, 16, 17, 33, 36, 48} {
			x := rowsOf(normal(n*k, 1), k)
			for i, row := range x {
				for j := range row {
					row[j] += contract.BF16((i*5%40 - 20) << 7)
				}
			}
			want := make([]float32, n*m)
			for i := range x {
				for j := range m {
					want[i*m+j] = contract.TCDot(x[i], w[j*k:][:k])
				}
			}
			var left Left
			left.Set(x)
			for q, r := range rights {
				for from := 0; from < m; from += max(isa.lanes, 32) {
					for to := from + 1; to <= m; to += 9 {
						stride := to - from + gap
						out := poison(n*stride + 64)
						o.Dot(out, stride, &left, r, from, to, 0)
						for i, v := range out {
							row, j := i/stride, i%stride
							what := fmt.Sprintf("%s, operand %d, %d rows, outputs %d to %d", isa.name, q, n, from, to)
							if row < n && j < to-from {
								same(t, what, row, from+j, v, want[row*m+from+j])
							} else if math.Float32bits(v) != 0x7FFF7FFF {
								t.Fatalf("%s: wrote %v at %d, beyond row %d", what, v, i, row)
							}
						}
					}
				}
			}
		}
	}
}

// TestLeftAgain: a left operand that is set again gives the new rows' products, in each form.
func TestLeftAgain(t *testing.T) {
	const k, m = 40, 64
	for _, isa := range rungs() {
		o := NewWorker(isa)
		v, w := normal(4*k, 1), normal(m*k, 0.02)
		rights := []Right{Rows(w, k, Top(w))}
		if p := pack(o, w, k); p != nil {
			rights = append(rights, p.Rows())
		}
		var left Left
		for i, row := range rowsOf(v, k) {
			left.Set([][]contract.BF16{row})
			for _, r := range rights {
				out := poison(m)
				o.Dot(out, m, &left, r, 0, m, 0)
				for j, have := range out {
					same(t, isa.name, i, j, have, contract.TCDot(row, w[j*k:][:k]))
				}
			}
		}
	}
}

// TestMisuse: what Dot cannot do is a panic that says so.
func TestMisuse(t *testing.T) {
	for _, isa := range rungs() {
		o := NewWorker(isa)
		w := normal(130*32, 1)
		var left, short Left
		left.Set(rowsOf(w, 32)[:1])
		short.Set(rowsOf(w, 31)[:1])
		out := make([]float32, 130)
		check := func(want string, do func()) {
			t.Helper()
			defer func() {
				if have := recover(); have != want {
					t.Errorf("%s: recovered %v, want %s", isa.name, have, want)
				}
			}()
			do()
		}
		r := Rows(w, 32, Top(w))
		check("tcdot: a segment is a multiple of 16", func() { o.Dot(out, 130, &left, r, 0, 130, 8) })
		check("tcdot: operands of different lengths", func() { o.Dot(out, 130, &short, r, 0, 130, 0) })
		if p := pack(o, w, 32); p != nil {
			check("tcdot: part of a panel of packed outputs", func() { o.Dot(out, 130, &left, p.Rows(), 1, 130, 0) })
		}
	}
}
