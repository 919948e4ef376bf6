// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package tcdot

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/samebit/samebit/contract"
)

// families are kinds of operands: the exponent fields of a and b, from and how many, and the share of zeros. They cover the
// whole range, both ends of the law's, and sums that overflow.
var families = []struct {
	name string
	a, b [2]int
	zero float64
}{
	{"ordinary", [2]int{120, 10}, [2]int{110, 12}, 0},
	{"sparse", [2]int{120, 10}, [2]int{110, 12}, 0.8},
	{"one exponent", [2]int{127, 1}, [2]int{127, 1}, 0},
	{"wide", [2]int{60, 130}, [2]int{60, 130}, 0.1},
	{"whole range", [2]int{0, 255}, [2]int{0, 255}, 0.1},
	{"near the least scale", [2]int{57, 12}, [2]int{57, 12}, 0},
	{"below FP32's least step", [2]int{45, 12}, [2]int{45, 20}, 0.3},
	{"subnormal", [2]int{0, 1}, [2]int{100, 50}, 0},
	{"overflow", [2]int{188, 4}, [2]int{188, 4}, 0},
	{"huge and tiny", [2]int{1, 254}, [2]int{127, 1}, 0},
	{"with infinities and NaN", [2]int{126, 130}, [2]int{126, 3}, 0.1},
}

// rungs are Sets, and what they are without a direct path: panels must serve few rows, too. Those of avx512bf16 are avx512's.
func rungs() []*ISA {
	all := Sets()
	for _, s := range Sets() {
		if s.direct != nil && !s.bf16 {
			less := *s
			less.name, less.direct = s.name+" by panels", nil
			all = append(all, &less)
		}
	}
	return all
}

func operand(r *rand.Rand, n int, within [2]int, zero float64) []contract.BF16 {
	v := make([]contract.BF16, n)
	signed := r.IntN(4) > 0 // else sums only grow
	for i := range v {
		b := r.IntN(128) | (within[0]+r.IntN(within[1]))%256<<7
		if r.IntN(3) == 0 {
			b |= 0x7F
		}
		if signed {
			b |= r.IntN(2) << 15
		}
		if r.Float64() < zero {
			b &= 0x8000
		}
		v[i] = contract.BF16(b)
	}
	return v
}

// TestProducts holds every instruction set against the contract's dot product, bit for bit.
func TestProducts(t *testing.T) {
	for _, isa := range rungs() {
		o := NewWorker(isa)
		for _, f := range families {
			t.Run(isa.Name()+"/"+f.name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(1, 2))
				for _, c := range []struct{ n, m, k int }{{1, 1, 1}, {1, 16, 16}, {3, 17, 15}, {2, 33, 40}, {5, 64, 128}, {1, 64, 272}, {16, 130, 40}, {17, 64, 48}, {1, 48, 272}, {37, 70, 96}, {65, 31, 33}, {2, 16, 2048}} {
					x, w := rowsOf(operand(r, c.n*c.k, f.a, f.zero), c.k), operand(r, c.m*c.k, f.b, f.zero)
					for _, segment := range []int{0, 16, contract.LogitSegment} {
						testRows(t, o, x, w, r.IntN(c.m), segment)
					}
					columns := slices.Concat(transposed(rowsOf(w, c.k))...)
					testColumns(t, o, x, c.m, r.IntN(c.m), columns)
					cut := r.IntN(c.k+1) * c.m
					testColumns(t, o, x, c.m, r.IntN(c.m), columns[:cut], columns[cut:])
					rows := min(c.k, contract.FoldSegment)
					testFold(t, o, transposed(x)[:rows], r.IntN(c.n), columns[:rows*c.m])
				}
			})
		}
	}
}

func transposed(m [][]contract.BF16) [][]contract.BF16 {
	out := make([][]contract.BF16, len(m[0]))
	for j := range out {
		for i := range m {
			out[j] = append(out[j], m[i][j])
		}
	}
	return out
}

func column(m [][]contract.BF16, j int) []contract.BF16 {
	var c []contract.BF16
	for _, r := range m {
		c = append(c, r[j])
	}
	return c
}

// testRows is x times w^T, outputs from one on.
func testRows(t *testing.T, o *Worker, x [][]contract.BF16, w []contract.BF16, from, segment int) {
	t.Helper()
	k := len(x[0])
	to, stride := len(w)/k, len(w)/k+3
	var left Left
	left.Set(x)
	check := func(what string, r Right, from int) {
		out := poison(len(x) * stride)
		o.Dot(out, stride, &left, r, from, to, segment)
		for i := range x {
			for j := from; j < to; j++ {
				want := contract.TCDot(x[i], w[j*k:][:k])
				if segment > 0 {
					want = contract.TCDotSegments(x[i], w[j*k:][:k], segment)
				}
				same(t, fmt.Sprintf("%s %dx%dx%d segment %d", what, len(x), to-from, k, segment), i, j, out[i*stride+j-from], want)
			}
		}
	}
	check("rows", Rows(w, k, Top(w)), from)
	if p := pack(o, w, k); p != nil {
		check("packed rows", p.Rows(), from/64*64)
	}
}

// pack is nil where the instruction set packs nothing.
func pack(o *Worker, w []contract.BF16, k int) *Packed {
	n := o.isa.Words(len(w)/k, k)
	if n == 0 {
		return nil
	}
	data := make([]uint32, n)
	for i := range data {
		data[i] = 0x7FC07FC0 // padding must be written, too
	}
	return o.Pack(w, k, data)
}

// testColumns is x times the parts, one below the other, of m columns.
func testColumns(t *testing.T, o *Worker, x [][]contract.BF16, m, from int, parts ...[]contract.BF16) {
	t.Helper()
	w := rowsOf(slices.Concat(parts...), m)
	var left Left
	left.Set(x)
	check := func(what string, r Right, from int) {
		out := poison(len(x) * (m - from))
		o.Dot(out, m-from, &left, r, from, m, 0)
		for i := range x {
			for j := from; j < m; j++ {
				same(t, fmt.Sprintf("%s %dx%dx%d", what, len(x), m-from, len(w)), i, j, out[i*(m-from)+j-from], contract.TCDot(x[i], column(w, j)))
			}
		}
	}
	top := 0
	var packed []*Packed
	for _, p := range parts {
		top = max(top, Top(p))
		if len(p) > 0 {
			packed = append(packed, pack(o, p, m))
		}
	}
	check("columns", Columns(m, top, parts...), from)
	if packed[0] != nil {
		check("packed columns", PackedColumns(packed...), from/64*64)
	}
}

func testFold(t *testing.T, o *Worker, a [][]contract.BF16, from int, b []contract.BF16) {
	t.Helper()
	rows, columns := len(a[0]), len(b)/len(a)
	acc := make([]float32, rows*columns)
	for i := range acc {
		acc[i] = []float32{0, 0.37, -1e30, 3e38, float32(math.Inf(1)), float32(math.NaN()), 1e-40}[i%7]
	}
	want := slices.Clone(acc)
	o.Fold(acc[from*columns:], columns, a, from, rows, b)
	for i := range rows {
		for j := range columns {
			at := i*columns + j
			if i >= from {
				accumulate(&want[at], contract.TCDot(column(a, i), column(rowsOf(b, columns), j)))
			}
			same(t, fmt.Sprintf("fold %dx%dx%d", rows, columns, len(a)), i, j, acc[at], want[at])
		}
	}
}

func rowsOf(m []contract.BF16, n int) [][]contract.BF16 {
	var r [][]contract.BF16
	for ; len(m) >= n; m = m[n:] {
		r = append(r, m[:n:n])
	}
	return r
}

func poison(n int) []float32 {
	p := make([]float32, n)
	for i := range p {
		p[i] = math.Float32frombits(0x7FFF7FFF)
	}
	return p
}

func same(t *testing.T, what string, i, j int, have, want float32) {
	t.Helper()
	if h, w := math.Float32bits(have), math.Float32bits(want); h != w {
		t.Fatalf("%s: [%d,%d] is %08X (%v), want %08X (%v)", what, i, j, h, have, w, want)
	}
}
