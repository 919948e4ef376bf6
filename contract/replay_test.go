// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/samebit/samebit/contract"
)

// TestReplay: ids given in the order of selection change nothing; in another order, the slots' order is theirs (R3, R4).
func TestReplay(t *testing.T) {
	bothModes(func(s contract.Shape) {
		const tokens = 40
		r := rand.New(rand.NewPCG(12, 16))
		l := randomLayer(r, s)
		x, dy := normals(r, tokens*s.Hidden, 1), normals(r, tokens*s.Hidden, 1)
		selected := runLayer(l, x, dy, nil)
		// Swaps of the two inside a pair, and of the pairs, leave a tree over four its bits: so the weights, c, dx and all
		// gradients, while y follows the slots.
		for _, order := range [][]int{{0, 1, 2, 3}, {1, 0, 2, 3}, {0, 1, 3, 2}, {2, 3, 0, 1}, {3, 2, 1, 0}} {
			var replay [][]int32
			for _, token := range selected.tokens {
				var ids []int32
				for _, k := range order {
					ids = append(ids, token.IDs[k])
				}
				replay = append(replay, ids)
			}
			got := runLayer(l, x, dy, replay)
			what := fmt.Sprintf("norm %t, slots %d", s.NormTopK, order)
			sameGradients(t, what, s.Hidden, got, selected)
			var weights []float32
			for _, token := range selected.tokens {
				for _, k := range order {
					weights = append(weights, token.Weights[k])
				}
			}
			sameBits(t, what+": weights", s.TopK, join(got, routes), weights)
			sameBits(t, what+": ids", s.TopK, join(got, ids), slices.Concat(replay...))
			if order[0] == 0 && order[2] == 2 {
				sameResult(t, what, s.Hidden, got, selected)
			}
		}
	})
}

// TestReplayOrder tells slot order from any other, where it can be seen: rows of 1e20, 1, -1e20, 1 (R7, R9).
func TestReplayOrder(t *testing.T) {
	s := contract.Shape{Hidden: 1, Experts: 4, TopK: 4, Width: 1, NormTopK: true}
	l := randomLayer(rand.New(rand.NewPCG(13, 16)), s)
	l.Weights.Router = repeated(0, 4) // equal logits: weights of 1/4
	for e, v := range []float32{1e20, 1, -1e20, 1} {
		// silu(64) = 64 and 64*(1/64): h is 1, the row is the down weight, and dh*u*slope is dy times it, over 64.
		l.Weights.Experts[e] = contract.Expert{Gate: []contract.BF16{power(6)}, Up: []contract.BF16{power(-6)}, Down: []contract.BF16{contract.Round(4 * v)}}
	}
	for _, c := range []struct {
		ids  []int32
		want float32
	}{{[]int32{0, 1, 2, 3}, 1}, {[]int32{1, 3, 0, 2}, 0}, {[]int32{0, 2, 1, 3}, 2}, {[]int32{3, 0, 2, 1}, 1}} {
		token := l.Forward(repeated(one, 1), c.ids)
		same(t, fmt.Sprintf("y for ids %d", c.ids), token.Y[0], contract.Round(c.want))
		// dx takes the rows, twice as large, by ascending id whatever the slots.
		same(t, fmt.Sprintf("dx for ids %d", c.ids), l.Backward(token, repeated(one, 1), l.NewGradients())[0], power(1))
	}
}

// TestReplayedStrangers: ids that are not the largest get weights, and a router gradient, from the live logits (R4).
func TestReplayedStrangers(t *testing.T) {
	bothModes(func(s contract.Shape) {
		r := rand.New(rand.NewPCG(14, 16))
		l := randomLayer(r, s)
		x := normals(r, s.Hidden, 1)
		all := contract.Select(l.Forward(x, nil).Logits, s.Experts)
		last := all[s.Experts-s.TopK:]
		token := l.Forward(x, last)
		sameBits(t, "weights", s.TopK, token.Weights, contract.RouteWeights(token.Logits, last, s.NormTopK))
		grads := l.NewGradients()
		l.Backward(token, normals(r, s.Hidden, 1), grads)
		for _, e := range last {
			if !slices.ContainsFunc(grads.Router[int(e)*s.Hidden:][:s.Hidden], func(v float32) bool { return v != 0 }) {
				t.Errorf("norm %t: expert %d has no router gradient", s.NormTopK, e)
			}
		}
		zero := !slices.ContainsFunc(grads.Router[int(all[0])*s.Hidden:][:s.Hidden], func(v float32) bool { return v != 0 })
		if zero != s.NormTopK {
			t.Errorf("norm %t: the gradient of a logit that was not selected is zero: %t", s.NormTopK, zero)
		}
	})
}
