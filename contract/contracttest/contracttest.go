// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package contracttest is the conformance suite: whatever a backend does, it gives the contract's bits or fails. Inputs are
// of the kinds that broke other layers; upstream gradients are random; buffers are full of NaN before they are written.
package contracttest

import (
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
)

// Run holds the backend that the options name against the contract's layer, which takes one token at a time. Every
// layer under test runs over buffers that are poisoned before each use.
func Run(t *testing.T, o samebit.Options) {
	o.Backend = poisoned(t, o.Backend)
	for _, s := range []struct {
		name string
		test func(*testing.T, samebit.Options)
	}{
		{"shapes", shapes},
		{"every count", everyCount},
		{"boundaries", boundaries},
		{"batch", batch},
		{"routing", routing},
		{"load", load},
		{"gradients", gradients},
		{"recomputed", recomputed},
		{"BF16 gradients", rounded},
		{"calls", calls},
		{"numbers", numbers},
	} {
		t.Run(s.name, func(t *testing.T) { s.test(t, o) })
	}
}

// subject is a layer under test beside the contract's.
type subject struct {
	t      *testing.T
	oracle contract.Layer
	layer  *samebit.Layer
}

func open(t *testing.T, o samebit.Options, s contract.Shape, w *contract.Weights) *subject {
	t.Helper()
	l, err := samebit.New(s, w, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &subject{t, contract.Layer{Shape: s, Weights: *w, BF16Logits: o.RouterLogits == samebit.BF16Logits}, l}
}

// result is all that a layer says of its tokens.
type result struct {
	y, dx   []contract.BF16
	logits  []float32
	ids     []int32
	weights []float32
	grads   *contract.Gradients
}

// want is the contract's result: forward, and with dy backward, of tokens x in this order.
func (s *subject) want(x, dy []contract.BF16, replay []int32) result {
	r := result{grads: s.oracle.NewGradients()}
	for t := range len(x) / s.oracle.Hidden {
		s.wantToken(&r, x, dy, replay, t)
	}
	r.grads.Flush()
	return r
}

// wantToken adds token t to r, whose gradients are not flushed.
func (s *subject) wantToken(r *result, x, dy []contract.BF16, replay []int32, t int) {
	var again []int32
	if replay != nil {
		again = row(replay, t, s.oracle.TopK)
	}
	token := s.oracle.Forward(row(x, t, s.oracle.Hidden), again)
	r.y, r.logits = append(r.y, token.Y...), append(r.logits, token.Logits...)
	r.ids, r.weights = append(r.ids, token.IDs...), append(r.weights, token.Weights...)
	if dy != nil {
		r.dx = append(r.dx, s.oracle.Backward(token, row(dy, t, s.oracle.Hidden), r.grads)...)
	}
}

// have is the layer's result, of one batch.
func (s *subject) have(x, dy []contract.BF16, replay []int32) result {
	s.t.Helper()
	g, err := s.layer.NewGradients(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r := s.add(g, x, dy, replay)
	s.flush(g)
	return r
}

// add runs one micro-batch of a stream.
func (s *subject) add(g *samebit.Gradients, x, dy []contract.BF16, replay []int32) result {
	s.t.Helper()
	var options []samebit.ForwardOption
	if replay != nil {
		options = append(options, samebit.Replay(replay))
	}
	if dy != nil {
		options = append(options, samebit.Train)
	}
	out, err := s.layer.Forward(x, options...)
	if rejected := (*samebit.RejectedError)(nil); err != nil && !as(err, &rejected) {
		s.t.Fatal(err)
	}
	r := result{y: out.Y, logits: out.Logits, ids: out.IDs, weights: out.Weights, grads: g.FP32()}
	if dy != nil {
		defer out.Tape.Free()
		if r.dx, err = s.layer.Backward(out.Tape, dy, g); err != nil {
			s.t.Fatal(err)
		}
	}
	return r
}

func (s *subject) flush(g *samebit.Gradients) {
	s.t.Helper()
	if err := g.Flush(); err != nil {
		s.t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// check holds the layer against the contract on one batch.
func (s *subject) check(what string, x, dy []contract.BF16, replay []int32) {
	s.t.Helper()
	s.same(what, s.have(x, dy, replay), s.want(x, dy, replay))
}
