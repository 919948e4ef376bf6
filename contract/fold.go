// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract

import "slices"

// FoldSegment is how many rows of the token stream one segment of a weight gradient's dot product takes (R11).
const FoldSegment = 32

// ExpertGradient is the gradient of one expert's weights: a fold over its stream of rows (R11). The accumulators are
// FP32, laid out as the weights; rows that do not fill a segment wait for the next ones, or for Flush.
type ExpertGradient struct {
	Gate, Up []float32 // [I,H]
	Down     []float32 // [H,I]
	waiting  []streamed
}

type streamed struct {
	x, dy []BF16 // [H]
	r     RowGradient
}

// Add takes the stream's next row, and keeps x, dy and r until their segment is full. Rows come in ascending token order;
// those of a dy that is all zero stay out.
func (g *ExpertGradient) Add(x, dy []BF16, r RowGradient) {
	g.waiting = append(g.waiting, streamed{x, dy, r})
	if len(g.waiting) == FoldSegment {
		g.Flush()
	}
}

// Flush folds the waiting rows in as one last segment.
func (g *ExpertGradient) Flush() {
	if len(g.waiting) == 0 {
		return
	}
	hidden, width := len(g.waiting[0].x), len(g.waiting[0].r.HW)
	x := g.columns(hidden, func(s streamed) []BF16 { return s.x })
	dy := g.columns(hidden, func(s streamed) []BF16 { return s.dy })
	gate := g.columns(width, func(s streamed) []BF16 { return s.r.DGate })
	up := g.columns(width, func(s streamed) []BF16 { return s.r.DUp })
	hw := g.columns(width, func(s streamed) []BF16 { return s.r.HW })
	for i := range width {
		for j := range hidden {
			accumulate(&g.Gate[i*hidden+j], TCDot(gate[i], x[j]))
			accumulate(&g.Up[i*hidden+j], TCDot(up[i], x[j]))
			accumulate(&g.Down[j*width+i], TCDot(dy[j], hw[i]))
		}
	}
	g.waiting = g.waiting[:0]
}

// columns transposes one field of the waiting rows: n columns, each as long as there are rows.
func (g *ExpertGradient) columns(n int, field func(streamed) []BF16) [][]BF16 {
	c := make([][]BF16, n)
	for i := range c {
		c[i] = make([]BF16, len(g.waiting))
		for t, s := range g.waiting {
			c[i][t] = field(s)[i]
		}
	}
	return c
}

// FoldRouter adds one token to the gradient [H] of a row of the router: acc = RN(acc + RN(dl*x)), tokens ascending (R10).
func FoldRouter(acc []float32, dl float32, x []BF16) {
	for j := range acc {
		accumulate(&acc[j], float32(dl*x[j].Float32()))
	}
}

// accumulate adds v, rounding to nearest even; a NaN is 0x7FFFFFFF (R0).
func accumulate(acc *float32, v float32) { *acc = nan(*acc + v) }

// Clone copies the accumulators and what waits.
func (g *ExpertGradient) Clone() *ExpertGradient {
	return &ExpertGradient{slices.Clone(g.Gate), slices.Clone(g.Up), slices.Clone(g.Down), slices.Clone(g.waiting)}
}
