// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
)

// visit is rows at a stack: tokens of its own, each of which has one expert or, where its id is -1, no work. Rows are given and come
// back in the order of their arrival; the ranks of a column have the same visits.
type visit struct {
	*stack
	kept   *work
	n      int
	x, ids backend.Buffer // [n,H], [n,1]
	rows   backend.Rows
	made   []backend.Activations // by the inner slices
}

// visit plans the rows x [n,H], of the experts ids [n]; w keeps them.
func (s *stack) visit(w *work, x []BF16, ids []int32) *visit {
	v := &visit{stack: s, kept: w, n: len(ids)}
	if v.n == 0 {
		return v
	}
	v.x, v.ids, v.rows = made(w, backend.BF16, x), made(w, backend.I32, ids), v.newRows(w)
	w.run(func() error { return s.outer.layer.Plan(backend.Plan{IDs: v.ids, Rows: v.rows}) })
	return v
}

func (v *visit) newRows(w *work) backend.Rows {
	return backend.Rows{
		Tokens: v.n, Slots: 1, Offsets: w.alloc(backend.I32, v.experts+2),
		Token: w.alloc(backend.I32, 2*v.n), Slot: w.alloc(backend.I32, 2*v.n), Row: w.alloc(backend.I32, 2*v.n),
	}
}

// gateUp is R6 up to h, of this rank's share of I.
func (v *visit) gateUp(train bool) {
	if v.n == 0 {
		return
	}
	for _, b := range v.inner {
		n := v.n * b.columns.Len()
		a := backend.Activations{H: v.kept.alloc(backend.BF16, n)}
		if train {
			a.G, a.U = v.kept.alloc(backend.FP32, n), v.kept.alloc(backend.FP32, n)
		}
		v.made = append(v.made, a)
		v.kept.run(func() error { return b.layer.GateUp(backend.GateUp{X: v.x, Rows: v.rows, Routed: a}) })
	}
}

// down is R6 from h: this rank's share of H of each row, in the order of arrival. h crosses the column.
func (v *visit) down() []BF16 {
	if v.n == 0 {
		return nil
	}
	w := v.kept.brief()
	defer w.close()
	h := backend.Activations{H: v.whole(w, "h", func(i int) backend.Buffer { return v.made[i].H })}
	out := w.alloc(backend.BF16, v.n*v.outputs.Len())
	w.run(func() error { return v.outer.layer.Down(backend.Down{Rows: v.rows, Routed: h, Out: out}) })
	return arrival(get[BF16](w, out, v.n*v.outputs.Len()), places(w, v.rows, v.n), v.outputs.Len())
}

// whole is rows of all I numbers, [n,I], of the blocks that the ranks of the column have.
func (v *visit) whole(w *work, what string, block func(i int) backend.Buffer) backend.Buffer {
	if v.alone() {
		return block(0)
	}
	mine := v.share(w, block)
	var all []BF16
	w.run(func() (err error) {
		defer v.sending(what)()
		all, err = gatherColumns(v.column, mine, v.shares(), v.n, v.width)
		return err
	})
	return made(w, backend.BF16, all)
}

// share is this rank's share of rows, [n,W], of its blocks.
func (v *visit) share(w *work, block func(i int) backend.Buffer) []BF16 {
	var parts [][]BF16
	var of []contract.Range
	for i, b := range v.inner {
		parts = append(parts, get[BF16](w, block(i), v.n*b.columns.Len()))
		of = append(of, b.within(v.mine()))
	}
	return joinColumns(parts, of, v.n, v.mine().Len())
}

// places are the rows of the arrivals in a plan, -1 for those that have none.
func places(w *work, plan backend.Rows, n int) []int32 {
	at := get[int32](w, plan.Row, 2*n)
	for i := range n {
		at[i] = at[2*i]
	}
	return at[:n]
}

// arrival gives rows of n columns in the order of arrival; +0 for those that are nowhere.
func arrival[T any](rows []T, at []int32, n int) []T {
	out := make([]T, len(at)*n)
	for i, r := range at {
		if r >= 0 {
			copy(row(out, i, n), row(rows, int(r), n))
		}
	}
	return out
}
