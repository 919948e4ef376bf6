// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contracttest

import (
	"math/rand/v2"
	"slices"

	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
)

// small is the shape of most cases: nothing in it is a multiple of 64, and two of its sizes are not of 16.
var small = contract.Shape{Hidden: 40, Experts: 12, TopK: 3, Width: 24, SharedWidth: 20, NormTopK: true}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// weights are random, and larger than a model's, so that the small shape's experts do not all but vanish.
func weights(s contract.Shape, seed uint64) *contract.Weights {
	w := testgen.Weights(s, seed)
	for _, v := range [][]contract.BF16{w.Router, w.SharedGate} {
		scale(v, 8)
	}
	for e := range w.Experts {
		scaleExpert(&w.Experts[e])
	}
	if w.Shared != nil {
		scaleExpert(w.Shared)
	}
	return &w
}

func scaleExpert(e *contract.Expert) {
	scale(e.Gate, 8)
	scale(e.Up, 8)
	scale(e.Down, 8)
}

// scale multiplies by a power of two.
func scale(v []contract.BF16, by float32) {
	for i := range v {
		v[i] = contract.Round(v[i].Float32() * by)
	}
}

func tokens(n int, s contract.Shape, seed uint64) (x, dy []contract.BF16) {
	return testgen.Tokens(n, s.Hidden, seed), testgen.Upstream(n, s.Hidden, seed)
}

// pick is the rows of m, of n columns, in this order.
func pick[T any](m []T, n int, order []int) []T {
	var out []T
	for _, i := range order {
		out = append(out, row(m, i, n)...)
	}
	return out
}

// pick is the rows of a result that belong to these tokens; the gradients are left alone.
func (s *subject) pick(r result, order []int) result {
	o := s.oracle
	p := result{y: pick(r.y, o.Hidden, order), logits: pick(r.logits, o.Experts, order), ids: pick(r.ids, o.TopK, order),
		weights: pick(r.weights, o.TopK, order), grads: r.grads}
	if r.dx != nil {
		p.dx = pick(r.dx, o.Hidden, order)
	}
	return p
}

func span(from, to int) []int {
	var out []int
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

// identity makes a router whose logit e is x[e]; the rest of x still goes through the experts.
func identity(s contract.Shape, w *contract.Weights) *contract.Weights {
	clear(w.Router)
	for e := range s.Experts {
		w.Router[e*s.Hidden+e] = 0x3F80
	}
	return w
}

// withLogits gives tokens x whose first E values are these, for identity's router.
func withLogits(s contract.Shape, x []contract.BF16, logits ...[]float32) []contract.BF16 {
	x = slices.Clone(x[:len(logits)*s.Hidden])
	for t, l := range logits {
		for e, v := range l {
			x[t*s.Hidden+e] = contract.Round(v)
		}
	}
	return x
}
