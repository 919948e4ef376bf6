// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel_test

import (
	"errors"
	"testing"

	"github.com/samebit/samebit"
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
		"x":       int64(far * grid.TP * 2 * h),                // whole, from each tensor-parallel rank to its like
		"rows":    int64(rows * 2 * h),                         // a half from each
		"h":       int64(n * (k*width + tiny.SharedWidth) * 2), // a half each way, of every row
		"y":       int64(n * h * 2),
		"dgate":   int64(n * (k*width + tiny.SharedWidth) * 2),
		"dup":     int64(n * (k*width + tiny.SharedWidth) * 2),
		"dy":      int64(far * grid.TP * 2 * h),
		"dx rows": int64(rows * 2 * h),
		"dx":      int64(n * h * 2),
	}
	sums := make([]parallel.Volume, grid.Ranks())
	errs := onRanks(parallel.Local(grid.Ranks()), func(i int, g parallel.Group) error {
		rank, err := parallel.Join(g, grid)
		if err != nil {
			return err
		}
		l, err := samebit.New(tiny, &weights, samebit.Options{Ranks: rank})
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
		if _, err := l.Backward(out.Tape, dy[from*h:to*h], nil); err != nil {
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
	all := want["x"] + want["rows"] + want["h"] + want["y"]
	if have := sums[0].Forward() - sums[0]["plan"]; have != all {
		t.Errorf("forward: %d bytes beside the plan, want %d", have, all)
	}
	if textbook := sums[0].Textbook(grid, n, h); textbook != int64(2*far*2*h+2*n*2*h) {
		t.Errorf("the textbook's: %d bytes, want %d", textbook, 2*far*2*h+2*n*2*h)
	}
}
