// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel_test

import (
	"errors"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
	"github.com/samebit/samebit/parallel"
)

// What crosses between ranks is what the token's routes ask for, counted here by hand, and nothing more.
func TestVolume(t *testing.T) {
	const n, each = 24, 12 // tokens, of each of two columns
	grid := parallel.Grid{TP: 2, EP: 2}
	x, dy := tokens(n, tiny)
	h, k, width := tiny.Hidden, tiny.TopK, tiny.Width
	var ids []int32
	for i := range n * k {
		ids = append(ids, int32((i*7+i/k*3)%tiny.Experts))
	}
	far, rows := 0, 0 // tokens that go to the other column's owner, rows that do
	for token := range n {
		away := 0
		for _, id := range ids[token*k : (token+1)*k] {
			if int(id) >= tiny.Experts/2 != (token >= each) {
				away++
			}
		}
		if rows += away; away > 0 {
			far++
		}
	}
	want := parallel.Volume{
		"plan":          int64(4*8 + rows*grid.TP*8),                 // two counts to a rank, and two numbers a row
		"x":             int64(far * grid.TP * 2 * h),                // whole, from each tensor-parallel rank to its like
		"x again":       int64(far * grid.TP * 2 * h),                // Recompute's
		"rows":          int64(rows * 2 * h),                         // a half from each
		"h":             int64(n * (k*width + tiny.SharedWidth) * 2), // a half each way, of every row
		"y":             int64(n * h * 2),
		"dgate":         int64(n * (k*width + tiny.SharedWidth) * 2),
		"dup":           int64(n * (k*width + tiny.SharedWidth) * 2),
		"route weights": int64(rows * grid.TP * 4),
		// Of I = 48 each rank has three subtrees of 8, of the shared expert's 64 one of 32.
		"dw": int64((n*k*6+n*2)*4 + rows*grid.TP*4),
		// To the other column, from each of 4 ranks: a count, half of x and dy, the ids and the gradients of their logits, dz, and half
		// of the shared expert's three.
		"fold": int64(4*4 + 4*each*(2*h+4*k+4*k+4+3*tiny.SharedWidth)),
		// Half of H of the router, the shared gate, and half of the shared expert, in FP32.
		"gradients": int64(4 * 4 * h / 2 * (tiny.Experts + 1 + 3*tiny.SharedWidth/2)),
		"dy":        int64(far * grid.TP * 2 * h),
		"dx rows":   int64(rows * 2 * h),
		"dx":        int64(n * h * 2),
	}
	sums := make([]parallel.Volume, grid.Ranks())
	errs := onRanks(parallel.Local(grid.Ranks()), func(i int, g parallel.Group) error {
		rank, err := parallel.Join(g, grid)
		if err != nil {
			return err
		}
		l, err := samebit.New(tiny, &weights, samebit.Options{Ranks: rank, Recompute: true})
		if err != nil {
			return err
		}
		defer l.Close()
		before := rank.Volume()
		_, ep := grid.At(i)
		from, to := ep*each, (ep+1)*each
		out, err := l.Forward(x[from*h:to*h], samebit.Train, samebit.Replay(ids[from*k:to*k]))
		if err != nil {
			return err
		}
		grads, err := l.NewGradients(nil)
		if err != nil {
			return err
		}
		if _, err := l.Backward(out.Tape, dy[from*h:to*h], grads); err != nil {
			return err
		}
		if err := grads.Flush(); err != nil {
			return err
		}
		sums[i], err = rank.SumVolumes(rank.Volume().Minus(before))
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for what, n := range want {
		if sums[0][what] != n {
			t.Errorf("%s: %d bytes, want %d", what, sums[0][what], n)
		}
	}
	for what := range sums[0] {
		if want[what] == 0 {
			t.Errorf("%s: %d bytes, want none", what, sums[0][what])
		}
	}
	forward := want["plan"] + want["x"] + want["rows"] + want["h"] + want["y"]
	if have := sums[0].Forward(); have != forward {
		t.Errorf("forward: %d bytes, want %d", have, forward)
	}
	all := int64(0)
	for _, n := range want {
		all += n
	}
	if have := sums[0].Backward(); have != all-forward-want["gradients"] {
		t.Errorf("backward: %d bytes, want %d", have, all-forward-want["gradients"])
	}
	if textbook := sums[0].Textbook(grid, n, h); textbook != int64(2*far*2*h+2*n*2*h) {
		t.Errorf("the textbook's: %d bytes, want %d", textbook, 2*far*2*h+2*n*2*h)
	}
}

// The gradients that all columns have are cut in H and in I: here each in two. What that costs is counted by hand.
func TestVolumeOfCommonGradients(t *testing.T) {
	const n, others = 20, 3
	s := contract.Shape{Hidden: 64, Experts: 8, TopK: 2, Width: 16, SharedWidth: 64, NormTopK: true}
	w := testgen.Weights(s, 1)
	x, dy := tokens(n, s)
	grid, sums := parallel.Grid{TP: 1, EP: 4}, make([]parallel.Volume, 4)
	errs := joined(grid, func(i int, r *parallel.Rank) error {
		l, err := samebit.New(s, &w, samebit.Options{Ranks: r})
		if err != nil {
			return err
		}
		defer l.Close()
		at := grid.Columns(0, n)[i]
		out, err := l.Forward(x[at.From*s.Hidden:at.To*s.Hidden], samebit.Train)
		if err != nil {
			return err
		}
		grads, err := l.NewBF16Gradients(nil)
		if err != nil {
			return err
		}
		defer grads.Close()
		if _, err := l.Backward(out.Tape, dy[at.From*s.Hidden:at.To*s.Hidden], grads); err != nil {
			return err
		}
		if err := grads.Flush(); err != nil {
			return err
		}
		sums[i], err = r.SumVolumes(r.Volume())
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	token := 2*2*s.Hidden/2 + 3*2*s.SharedWidth/2 + 4*s.TopK + 4*s.TopK + 4 // to another rank: of x and dy, of dg, du and hw, ids, dlogits, dz
	if have, want := sums[0]["fold"], int64(4*others*4+n*others*token); have != want {
		t.Errorf("fold: %d bytes, want %d", have, want)
	}
	if have, want := sums[0]["gradients"], int64(2*others*((s.Experts+1)*s.Hidden+3*s.SharedWidth*s.Hidden)); have != want {
		t.Errorf("gradients: %d bytes, want %d", have, want)
	}
}
