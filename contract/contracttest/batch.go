// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contracttest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
)

// batch: what a token's bits must not depend on.
func batch(t *testing.T, o samebit.Options) {
	const n = 64
	s := open(t, o, small, weights(small, 7))
	x, dy := tokens(n, small, 8)
	want := s.want(x, dy, nil)
	h := small.Hidden

	for i := range n {
		alone := s.have(row(x, i, h), row(dy, i, h), nil)
		s.same(fmt.Sprintf("token %d alone", i), withoutGradients(alone), withoutGradients(s.pick(want, []int{i})))
	}

	// A needle at a random place among others.
	r := seeded(9)
	for range 20 {
		others, at := 64+r.IntN(65), 0
		hay, up := tokens(others, small, r.Uint64())
		at = r.IntN(others)
		copy(row(hay, at, h), row(x, 5, h))
		copy(row(up, at, h), row(dy, 5, h))
		have := s.pick(s.have(hay, up, nil), []int{at})
		s.same(fmt.Sprintf("needle at %d of %d", at, others), withoutGradients(have), withoutGradients(s.pick(want, []int{5})))
	}

	// A huge row beside ordinary ones.
	huge := slices.Clone(x)
	for j := range h {
		huge[3*h+j] = contract.Round(1e4 * float32(1-2*(j%2)))
	}
	s.check("a row of 1e4", huge, dy, nil)

	orders := map[string][]int{"reversed": span(0, n), "permuted": r.Perm(n), "duplicated": append(span(0, n), span(0, n)...)}
	slices.Reverse(orders["reversed"])
	for name, order := range orders {
		have := s.have(pick(x, h, order), pick(dy, h, order), nil)
		s.same(name, withoutGradients(have), withoutGradients(s.pick(want, order)))
	}

	// Chunks of every size: within one call, and as calls of one stream.
	for size := 1; size <= n; size++ {
		o := o
		o.MaxTokens = size
		chunked := open(t, o, small, &s.oracle.Weights)
		s.same(fmt.Sprintf("workspace of %d tokens", size), chunked.have(x, dy, nil), want)
		s.same(fmt.Sprintf("calls of %d tokens", size), s.stream(x, dy, even(n, size)), want)
	}
	s.same("1+47+16", s.stream(x, dy, []int{1, 47, 16}), want)
	s.same("17+31+0+16", s.stream(x, dy, []int{17, 31, 0, 16}), want)

	// More rows in memory than tokens, the tail a NaN.
	tail := slices.Concat(x, slices.Repeat([]contract.BF16{0x7FC0}, 8*h))
	s.same("a NaN behind the tokens", s.have(tail[:len(x)], dy, nil), want)

	// Any number of workers.
	for _, workers := range []int{1, 2, 3, 7} {
		o := o
		o.Workers = workers
		s.same(fmt.Sprintf("%d workers", workers), open(t, o, small, &s.oracle.Weights).have(x, dy, nil), want)
	}
}

// stream runs the tokens as micro-batches of these sizes.
func (s *subject) stream(x, dy []contract.BF16, sizes []int) result {
	s.t.Helper()
	g, err := s.layer.NewGradients(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	all := result{grads: g.FP32()}
	h := s.oracle.Hidden
	for _, n := range sizes {
		r := s.add(g, x[:n*h], dy[:n*h], nil)
		x, dy = x[n*h:], dy[n*h:]
		all.y, all.dx, all.logits = append(all.y, r.y...), append(all.dx, r.dx...), append(all.logits, r.logits...)
		all.ids, all.weights = append(all.ids, r.ids...), append(all.weights, r.weights...)
	}
	s.flush(g)
	return all
}

// even cuts n into parts of this size and a rest.
func even(n, size int) []int {
	var parts []int
	for ; n > size; n -= size {
		parts = append(parts, size)
	}
	return append(parts, n)
}

// withoutGradients leaves out what belongs to a whole batch.
func withoutGradients(r result) result {
	r.grads = &contract.Gradients{}
	return r
}
