// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contracttest

import (
	"fmt"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
)

// everyCount: every T from 0 to 130, forward and every gradient.
func everyCount(t *testing.T, o samebit.Options) {
	step := 1
	if testing.Short() {
		step = 13
	}
	counts(t, o, small, step, func(n int) bool { return n <= 130 })
}

// boundaryCounts are where others switch kernels.
var boundaryCounts = map[int]bool{255: true, 256: true, 257: true, 511: true, 512: true, 513: true, 1023: true, 1024: true, 1025: true}

func boundaries(t *testing.T, o samebit.Options) {
	if testing.Short() {
		return
	}
	counts(t, o, contract.Shape{Hidden: 24, Experts: 6, TopK: 2, Width: 9, SharedWidth: 5}, 1, func(n int) bool { return n < 2 || boundaryCounts[n] })
}

// counts walks the contract's layer once through as many tokens as the largest count, and compares at each count asked for.
func counts(t *testing.T, o samebit.Options, shape contract.Shape, step int, asked func(int) bool) {
	most := 0
	for n := range 1026 {
		if asked(n) {
			most = n
		}
	}
	s := open(t, o, shape, weights(shape, 5))
	x, dy := tokens(most, shape, 6)
	want := result{grads: s.oracle.NewGradients()}
	for n := 0; ; n++ {
		if asked(n) && n%step == 0 {
			flushed := want
			flushed.grads = clone(want.grads)
			flushed.grads.Flush()
			s.same(fmt.Sprintf("%d tokens", n), s.have(x[:n*shape.Hidden], dy[:n*shape.Hidden], nil), flushed)
		}
		if n == most {
			return
		}
		s.wantToken(&want, x, dy, nil, n)
	}
}

// clone copies gradients with what waits in their folds.
func clone(g *contract.Gradients) *contract.Gradients {
	c := &contract.Gradients{Router: append([]float32(nil), g.Router...), SharedGate: append([]float32(nil), g.SharedGate...)}
	for e := range g.Experts {
		c.Experts = append(c.Experts, *g.Experts[e].Clone())
	}
	if g.Shared != nil {
		c.Shared = g.Shared.Clone()
	}
	return c
}
