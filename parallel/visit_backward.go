// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
)

// visitBackward is the backward of a visit's rows.
type visitBackward struct {
	*visit
	kept   *work
	dy     backend.Buffer // [n,H]
	rows   backend.Rows   // without those whose dy is all zero
	weight backend.Buffer
	grads  []backend.RowGradients // by the inner slices
}

// backward plans the rows' backward, from dy [n,H] and the weight of each [n]; w keeps it.
func (v *visit) backward(w *work, dy []BF16, weights []float32) *visitBackward {
	b := &visitBackward{visit: v, kept: w}
	if v.n == 0 {
		return b
	}
	// Not PlanBackward: a slice of H cannot tell whether all of dy is zero.
	ids := get[int32](w, v.ids, v.n)
	for i := range ids {
		if contract.AllZero(row(dy, i, v.hidden)) {
			ids[i] = -1
		}
	}
	b.dy, b.rows = made(w, backend.BF16, dy), v.newRows(w)
	w.run(func() error {
		return v.outer.layer.Plan(backend.Plan{IDs: made(w, backend.I32, ids), Rows: b.rows, Backward: true})
	})
	inOrder := make([]float32, v.n)
	for i, r := range places(w, b.rows, v.n) {
		if r >= 0 {
			inOrder[r] = weights[i]
		}
	}
	b.weight = made(w, backend.FP32, inOrder)
	return b
}

// experts is R8 of this rank's share of I, and the gradient of each row's weight, in the order of arrival: the tree's subtrees, of
// a block each, cross the column, and are added as the tree would.
func (b *visitBackward) experts() []float32 {
	if b.n == 0 {
		return nil
	}
	w := b.kept.brief()
	defer w.close()
	blocks := len(b.inner)
	sums := make([]float32, b.n*blocks)
	for i, s := range b.inner {
		size := b.n * s.columns.Len()
		g := backend.RowGradients{
			DGate: b.kept.alloc(backend.BF16, size), DUp: b.kept.alloc(backend.BF16, size), HW: b.kept.alloc(backend.BF16, size)}
		b.grads = append(b.grads, g)
		dweight := w.alloc(backend.FP32, b.n)
		w.run(func() error {
			return s.layer.ExpertsBackward(backend.ExpertsBackward{DY: b.dy, Rows: b.rows, Weight: b.weight, Forward: b.visit.rows,
				Routed: b.made[i], RoutedGrad: g, DWeight: dweight})
		})
		setColumns(sums, blocks, contract.Range{From: i, To: i + 1}, get[float32](w, dweight, b.n))
	}
	if !b.alone() {
		w.run(func() (err error) {
			sums, err = b.finishTrees(sums)
			return err
		})
	}
	if *w.err != nil {
		return nil
	}
	return arrival(sums, places(w, b.rows, b.n), 1)
}

// finishTrees gives the trees [n] of the column's sums of blocks, [n, blocks] of each rank.
func (b *visitBackward) finishTrees(sums []float32) ([]float32, error) {
	defer b.sending("dw")()
	var of []contract.Range
	blocks := 0
	for _, r := range b.shares() {
		n := len(b.Grid.Blocks(r, b.width))
		of = append(of, contract.Range{From: blocks, To: blocks + n})
		blocks += n
	}
	all, err := gatherColumns(b.column, sums, of, b.n, blocks)
	if err != nil {
		return nil, err
	}
	trees := make([]float32, b.n)
	for i := range trees {
		trees[i] = contract.Tree(row(all, i, blocks))
	}
	return trees, nil
}

// inputs is R9 up to each row's part of dx: this rank's share of H, in the order of arrival. dg and du cross the column.
func (b *visitBackward) inputs() []BF16 {
	if b.n == 0 {
		return nil
	}
	w := b.kept.brief()
	defer w.close()
	g := backend.RowGradients{
		DGate: b.whole(w, "dgate", func(i int) backend.Buffer { return b.grads[i].DGate }),
		DUp:   b.whole(w, "dup", func(i int) backend.Buffer { return b.grads[i].DUp }),
	}
	out := w.alloc(backend.BF16, b.n*b.outputs.Len())
	w.run(func() error {
		return b.outer.layer.RowsBackward(backend.RowsBackward{Rows: b.rows, RoutedGrad: g, Out: out})
	})
	return arrival(get[BF16](w, out, b.n*b.outputs.Len()), places(w, b.rows, b.n), b.outputs.Len())
}
