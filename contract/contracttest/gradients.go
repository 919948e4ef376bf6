// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contracttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
)

// recomputed is gradients with tapes that hold x and the routes alone.
func recomputed(t *testing.T, o samebit.Options) {
	o.Recompute = true
	gradients(t, o)
}

// gradients: the fold over the token stream, padding, repeats, accumulation in place.
func gradients(t *testing.T, o samebit.Options) {
	const n = 100
	s := open(t, o, small, weights(small, 31))
	x, dy := tokens(n, small, 32)
	want := s.want(x, dy, nil)
	h := small.Hidden

	for range 20 {
		s.same("a repeat", s.have(x, dy, nil), want)
	}

	// A second backward of one tape gives the same dx, and the same gradients to another stream.
	out, err := s.layer.Forward(x, samebit.Train)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"first", "second"} {
		g, err := s.layer.NewGradients(nil)
		if err != nil {
			t.Fatal(err)
		}
		dx, err := s.layer.Backward(out.Tape, dy, g)
		if err != nil {
			t.Fatal(err)
		}
		s.flush(g)
		equal(s, what+" backward of a tape: dx", dx, want.dx, h)
		s.sameGradients(what+" backward of a tape", g.FP32(), want.grads)
	}

	for _, parts := range [][]int{even(n, 50), even(n, 1), {17, 83}, {31, 1, 32, 33, 3}, {100, 0}} {
		s.same(fmt.Sprintf("micro-batches of %v", parts), s.stream(x, dy, parts), want)
	}

	// Strangers without a gradient, of either zero, anywhere.
	r := seeded(33)
	var px, pdy []contract.BF16
	var places []int
	for i := range n {
		for range r.IntN(3) {
			stranger, _ := tokens(1, small, r.Uint64())
			px, pdy = append(px, stranger...), append(pdy, slices.Repeat([]contract.BF16{0x8000 * contract.BF16(r.IntN(2))}, h)...)
		}
		places = append(places, len(px)/h)
		px, pdy = append(px, row(x, i, h)...), append(pdy, row(dy, i, h)...)
	}
	padded := s.have(px, pdy, nil)
	s.same("zero gradients between", s.pick(padded, places), want)
	s.check("zero gradients between", px, pdy, nil)

	// In place: three streams' worth adds up once each.
	into := small.NewGradients()
	for i := range into.Router {
		into.Router[i] = 256
	}
	into.Experts[3].Down[5] = 256
	oracle := clone(into)
	for range 3 {
		g, err := s.layer.NewGradients(into)
		if err != nil {
			t.Fatal(err)
		}
		s.add(g, x, dy, nil)
		s.flush(g)
		r := result{grads: oracle}
		for i := range n {
			s.wantToken(&r, x, dy, nil, i)
		}
		oracle.Flush()
	}
	s.sameGradients("main_grad", into, oracle)

	flushedTwice(s, x, dy)
	refreshed(t, o)

	// Clear refusals.
	if _, err = s.layer.Backward(nil, dy, nil); err != nil {
		wantError(t, err, "no tape")
	}
	_, err = s.layer.Backward(out.Tape, dy[h:], nil)
	wantError(t, err, "dy has 99 tokens: need 100")
	_, err = s.layer.Backward(out.Tape, dy[1:], nil)
	wantError(t, err, "need a multiple of the hidden size 40")
	_, err = s.layer.NewGradients(&contract.Gradients{})
	wantError(t, err, "router has 0 elements")
}

func wantError(t *testing.T, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("error %v, want one with %q", err, part)
	}
}

// refreshed: weights that change in place by many powers of two, as an optimizer's step never would; and then to a NaN.
func refreshed(t *testing.T, o samebit.Options) {
	w := weights(small, 34)
	s := open(t, o, small, w)
	x, dy := tokens(33, small, 35)
	for _, by := range []float32{1, 1e9, 1e-12} {
		for e := range w.Experts {
			scale(w.Experts[e].Gate, by)
			scale(w.Experts[e].Down, by)
		}
		scale(w.SharedGate, by)
		if err := s.layer.Refresh(); err != nil {
			t.Fatal(err)
		}
		s.check("weights changed in place", x, dy, nil)
	}
	w.Experts[7].Up[3] = 0x7FC0
	wantError(t, s.layer.Refresh(), "expert 7 up has NaN at 3")
}

// flushedTwice: a Flush ends the stream, another changes nothing, what comes after begins a stream of its own; calls without
// tokens and without gradients in between change nothing.
func flushedTwice(s *subject, x, dy []contract.BF16) {
	s.t.Helper()
	g, err := s.layer.NewGradients(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	want := s.oracle.NewGradients()
	h := s.oracle.Hidden
	for round, cut := range []int{47, 33, 1, 100} {
		n := len(x) / h
		s.add(g, x[:cut*h], dy[:cut*h], nil)
		s.add(g, nil, []contract.BF16{}, nil)
		s.add(g, x[:h], make([]contract.BF16, h), nil)
		s.add(g, x[cut*h:], dy[cut*h:], nil)
		for range 2 {
			if err := g.Flush(); err != nil {
				s.t.Fatal(err)
			}
		}
		r := result{grads: want}
		for i := range n {
			s.wantToken(&r, x, dy, nil, i)
		}
		want.Flush()
		s.sameGradients(fmt.Sprintf("stream %d of one accumulator", round), g.FP32(), want)
	}
}
