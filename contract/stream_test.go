// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/samebit/samebit/contract"
)

// TestFoldIsSegmentedDot ties the fold to R1: however many rows come, from whatever start, each element is its
// accumulator plus the stream's segments of 32 in order.
func TestFoldIsSegmentedDot(t *testing.T) {
	const hidden, width = 3, 2
	r := rand.New(rand.NewPCG(5, 16))
	for rows := range 100 {
		g := contract.ExpertGradient{Gate: make([]float32, width*hidden), Up: make([]float32, width*hidden), Down: make([]float32, hidden*width)}
		for i := range g.Gate {
			g.Gate[i], g.Up[i], g.Down[i] = float32(r.NormFloat64()), float32(r.NormFloat64()), float32(r.NormFloat64())
		}
		want := contract.ExpertGradient{Gate: slices.Clone(g.Gate), Up: slices.Clone(g.Up), Down: slices.Clone(g.Down)}
		x, dy := make([][]contract.BF16, hidden), make([][]contract.BF16, hidden)
		gate, up, hw := make([][]contract.BF16, width), make([][]contract.BF16, width), make([][]contract.BF16, width)
		push := func(columns [][]contract.BF16) []contract.BF16 {
			v := normals(r, len(columns), 1)
			for i := range v {
				columns[i] = append(columns[i], v[i])
			}
			return v
		}
		for range rows {
			g.Add(push(x), push(dy), contract.RowGradient{DGate: push(gate), DUp: push(up), HW: push(hw)})
		}
		g.Flush()
		g.Flush() // nothing is left
		for i := range width {
			for j := range hidden {
				addSegments(&want.Gate[i*hidden+j], gate[i], x[j])
				addSegments(&want.Up[i*hidden+j], up[i], x[j])
				addSegments(&want.Down[j*width+i], dy[j], hw[i])
			}
		}
		sameBits(t, fmt.Sprintf("%d rows, gate", rows), hidden, g.Gate, want.Gate)
		sameBits(t, fmt.Sprintf("%d rows, up", rows), hidden, g.Up, want.Up)
		sameBits(t, fmt.Sprintf("%d rows, down", rows), width, g.Down, want.Down)
	}
}

func addSegments(acc *float32, a, b []contract.BF16) {
	for s := 0; s < len(a); s += contract.FoldSegment {
		end := min(s+contract.FoldSegment, len(a))
		*acc += contract.TCDot(a[s:end], b[s:end])
	}
}

// TestFlushEndsStream: a Flush where a segment is full changes nothing; elsewhere the next row begins a new segment (R11).
func TestFlushEndsStream(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 16))
	const rows = 96
	a, b := normals(r, rows, 1), normals(r, rows, 1)
	fold := func(flushes ...int) float32 {
		g := contract.ExpertGradient{Gate: []float32{0}, Up: []float32{0}, Down: []float32{0}}
		for t := range rows {
			g.Add(b[t:t+1], a[t:t+1], contract.RowGradient{DGate: a[t : t+1], DUp: a[t : t+1], HW: b[t : t+1]})
			if slices.Contains(flushes, t+1) {
				g.Flush()
			}
		}
		g.Flush()
		return g.Gate[0]
	}
	same(t, "flushed where segments end", fold(32, 64), fold())
	var parts float32
	addSegments(&parts, a[:40], b[:40])
	addSegments(&parts, a[40:], b[40:])
	same(t, "flushed after 40 rows", fold(40), parts)
	if bitsOf(fold(40)) == bitsOf(fold()) {
		t.Error("these rows do not tell a flush from none: choose others")
	}
}

// TestMicroBatches runs one stream whole and cut into micro-batches, with tokens that take no part strewn in, into the
// same gradients: equal bits (R9, R11).
func TestMicroBatches(t *testing.T) {
	bothModes(func(s contract.Shape) {
		const tokens = 75
		r := rand.New(rand.NewPCG(7, 16))
		l := randomLayer(r, s)
		x, dy := normals(r, tokens*s.Hidden, 1), normals(r, tokens*s.Hidden, 1)
		want := runLayer(l, x, dy, nil)
		for _, sizes := range [][]int{{tokens}, {1, tokens - 1}, {17, 58}, {32, 32, 11}, slices.Repeat([]int{1}, tokens), slices.Repeat([]int{15}, 5)} {
			grads := l.NewGradients()
			var ts []contract.Token
			var dx [][]contract.BF16
			at := 0
			for _, n := range sizes {
				// Every forward of a micro-batch comes before its backward, and its buffers are its own.
				batch, upstream := slices.Clone(x[at*s.Hidden:][:n*s.Hidden]), slices.Clone(dy[at*s.Hidden:][:n*s.Hidden])
				var micro []contract.Token
				for i := range n {
					micro = append(micro, l.Forward(batch[i*s.Hidden:][:s.Hidden], nil))
				}
				for i := range n {
					dx = append(dx, l.Backward(micro[i], upstream[i*s.Hidden:][:s.Hidden], grads))
					workless(l, r, grads)
				}
				ts, at = append(ts, micro...), at+n
			}
			grads.Flush()
			sameResult(t, fmt.Sprintf("norm %t, micro-batches of %d", s.NormTopK, sizes), s.Hidden, result{ts, dx, grads}, want)
		}
	})
}

// workless takes a masked, a padding and a rejected token backward.
func workless(l *contract.Layer, r *rand.Rand, grads *contract.Gradients) {
	x, zeros := normals(r, l.Hidden, 1), repeated(0, l.Hidden)
	for j := range zeros {
		zeros[j] = contract.BF16(r.IntN(2)) << 15
	}
	l.Backward(l.Forward(x, nil), zeros, grads)
	l.Backward(l.Forward(x, slices.Repeat([]int32{-1}, l.TopK)), x, grads)
	bad := slices.Clone(x)
	bad[r.IntN(len(bad))] = nan
	l.Backward(l.Forward(bad, nil), x, grads)
}
