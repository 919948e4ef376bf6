// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel_test

import (
	"errors"
	"testing"

	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/parallel"
)

// joined has the ranks of a grid do something.
func joined(grid parallel.Grid, do func(i int, r *parallel.Rank) error) []error {
	return onRanks(parallel.Local(grid.Ranks()), func(i int, group parallel.Group) error {
		r, err := parallel.Join(group, grid)
		if err != nil {
			return err
		}
		return do(i, r)
	})
}

// Weights and gradients come together on the rank that is to have them, and on no other; or on all.
func TestGather(t *testing.T) {
	values := make([]float32, tiny.Size())
	for i := range values {
		values[i] = float32(1 + i)
	}
	gradients := tiny.GradientsIn(values)
	for _, to := range []int{0, 3, parallel.Everyone} {
		errs := joined(parallel.Grid{TP: 2, EP: 2}, func(i int, r *parallel.Rank) error {
			w, err := parallel.GatherWeights(r, parallel.CutWeights(&weights, r.Part(tiny)), tiny, to)
			if err != nil {
				return err
			}
			part := r.Part(tiny)
			mine := part.NewGradients()
			copy(mine.Router, gradients.Router)
			copy(mine.SharedGate, gradients.SharedGate)
			for e := range tiny.Experts + 1 {
				width, share := tiny.Width, part.Width
				if e == tiny.Experts {
					width, share = tiny.SharedWidth, part.Shared
				} else if !part.Experts.Has(e) {
					continue
				}
				to, from := mine.Matrices(e), gradients.Matrices(e)
				copy(*to.Gate, (*from.Gate)[share.From*tiny.Hidden:])
				copy(*to.Up, (*from.Up)[share.From*tiny.Hidden:])
				for h := range tiny.Hidden {
					copy((*to.Down)[h*share.Len():(h+1)*share.Len()], (*from.Down)[h*width+share.From:])
				}
			}
			g, err := parallel.GatherGradients(r, mine, tiny, to)
			if err != nil {
				return err
			}
			if to != parallel.Everyone && to != i {
				if w != nil || g != nil {
					t.Errorf("to %d: rank %d has got something", to, i)
				}
				return nil
			}
			same(t, "router", w.Router, weights.Router)
			same(t, "shared gate", w.SharedGate, weights.SharedGate)
			same(t, "router's gradient", g.Router, gradients.Router)
			same(t, "shared gate's gradient", g.SharedGate, gradients.SharedGate)
			for e, x := range append(w.Experts, *w.Shared) {
				want := weights.Shared
				if e < tiny.Experts {
					want = &weights.Experts[e]
				}
				for k, m := range g.Matrices(e).All() {
					same(t, "gradient", *m, *gradients.Matrices(e).All()[k])
				}
				same(t, "gate", x.Gate, want.Gate)
				same(t, "up", x.Up, want.Up)
				same(t, "down", x.Down, want.Down)
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Errorf("to %d: %v", to, err)
		}
	}
}

// Gathers of other things, or to others, are errors on every rank.
func TestGatherAlike(t *testing.T) {
	type call struct {
		w  *contract.Weights
		s  contract.Shape
		to int
	}
	for name, c := range map[string]struct {
		change func(all bool, c *call)
		text   string
	}{
		"a rank that is not there": {func(_ bool, c *call) { c.to = 7 }, "to rank 7: need one of 0 to 1, or Everyone (-1)"},
		"one past the last":        {func(_ bool, c *call) { c.to = 2 }, "to rank 2: need one of 0 to 1"},
		"a negative rank":          {func(_ bool, c *call) { c.to = -2 }, "to rank -2: need one of 0 to 1"},
		"another rank": {func(odd bool, c *call) {
			if odd {
				c.to = 1
			}
		}, "need the same on every rank"},
		"weights that are whole": {func(odd bool, c *call) {
			if odd {
				c.w = &weights
			}
		}, "weights"},
		"another shape": {func(odd bool, c *call) {
			if odd {
				c.s.NormTopK = false
			}
		}, "need the same on every rank"},
	} {
		everyRank(t, name, joined(parallel.Grid{TP: 1, EP: 2}, func(i int, r *parallel.Rank) error {
			c2 := call{parallel.CutWeights(&weights, r.Part(tiny)), tiny, 0}
			c.change(i == 1, &c2)
			_, err := parallel.GatherWeights(r, c2.w, c2.s, c2.to)
			return err
		}), c.text)
	}
	for name, c := range map[string]struct {
		counts [2][]int
		text   string
	}{
		"counts of more columns": {[2][]int{{1, 1}, {1, 1, 1}}, "counts of 3 columns: need 2"},
		"a count of another":     {[2][]int{{1, 2}, {1, 2}}, "1 elements where counts says 2"},
		"other counts":           {[2][]int{{1, 2}, {2, 1}}, "need the same on every rank"},
	} {
		everyRank(t, name, joined(parallel.Grid{TP: 1, EP: 2}, func(i int, r *parallel.Rank) error {
			_, err := parallel.GatherRows(r, []float32{1}, c.counts[i])
			return err
		}), c.text)
	}
}
