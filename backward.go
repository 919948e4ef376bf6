// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit

import (
	"fmt"

	"github.com/samebit/samebit/backend"
)

// Tape is what a training forward keeps for its backward: x, routes and weights, and g and u in FP32. A backward leaves it
// as it was, so that it can be used again.
type Tape struct {
	layer  *Layer
	tokens int
	chunks []chunk
	freed  bool
}

type chunk struct {
	from, to int
	work     work
	arena    *arena
}

// Free gives the tape's memory back. It may be called twice, and on nil.
func (t *Tape) Free() {
	if t == nil {
		return
	}
	for _, c := range t.chunks {
		c.arena.close()
	}
	t.chunks, t.freed = nil, true
}

// Backward gives dx [T,H] from the upstream gradient dy [T,H] of a forward's tokens, and adds the tokens to the weights'
// gradients; with nil for those it gives dx alone. A token whose dy is all zero, of either sign, has a dx of +0 and takes
// part in no gradient; so has one that the forward rejected (R8 to R11).
func (l *Layer) Backward(tape *Tape, dy []BF16, g *Gradients) ([]BF16, error) {
	tokens, err := checkTokens("dy", dy, l.shape)
	switch {
	case l.unusable != nil:
		return nil, l.unusable
	case err != nil:
		return nil, err
	case tape != nil && tape.freed:
		return nil, fmt.Errorf("backward: the tape was freed: need one that was not")
	case tape == nil || tape.layer != l:
		return nil, fmt.Errorf("backward: no tape of this layer: need that of a Forward with Train")
	case g != nil && g.layer != l:
		return nil, fmt.Errorf("backward: gradients of another layer: need those of this layer's NewGradients")
	case tokens != tape.tokens:
		return nil, fmt.Errorf("backward: dy has %d tokens: need %d, as the tape has", tokens, tape.tokens)
	}
	dx := make([]BF16, len(dy))
	for _, c := range tape.chunks {
		h := l.shape.Hidden
		if err := l.backwardChunk(c.work, rowsOf(dy, c.from, c.to, h), rowsOf(dx, c.from, c.to, h), g); err != nil {
			return nil, err
		}
	}
	return dx, nil
}

func (l *Layer) backwardChunk(f work, dy, dx []BF16, g *Gradients) error {
	m := &arena{machine: l.machine}
	w := l.newBackwardWork(m, f)
	put(m, w.plan.DY, dy)
	m.run(func() error { return l.stages.PlanBackward(w.plan) })
	m.run(func() error { return l.stages.ExpertsBackward(w.experts) })
	m.run(func() error { return l.stages.RouteBackward(w.route) })
	m.run(func() error { return l.stages.RowsBackward(w.rows) })
	m.run(func() error { return l.stages.InputGradient(w.input) })
	if g != nil {
		m.run(g.begin)
		m.run(func() error { return g.fold.Add(w.fold) })
	}
	get(m, dx, w.input.DX)
	return m.close()
}

// backwardWork is the buffers of one backward, by stage.
type backwardWork struct {
	plan    backend.PlanBackward
	experts backend.ExpertsBackward
	route   backend.RouteBackward
	rows    backend.RowsBackward
	input   backend.InputGradient
	fold    backend.FoldArgs
}

func (l *Layer) newBackwardWork(m *arena, f work) backwardWork {
	s, tokens := l.shape, f.route.Tokens
	rows := l.newRows(m, tokens)
	all := tokens * (s.TopK + 1)
	dy := m.alloc(backend.BF16, tokens*s.Hidden)
	weight, dweight := m.alloc(backend.FP32, all), m.alloc(backend.FP32, all)
	routed := newRowGradients(m, tokens*s.TopK*s.Width)
	var shared backend.RowGradients
	var dz backend.Buffer
	if rows.Shared {
		shared, dz = newRowGradients(m, tokens*s.SharedWidth), m.alloc(backend.FP32, tokens)
	}
	logits := s.Experts
	if s.NormTopK {
		logits = s.TopK
	}
	dlogits := m.alloc(backend.FP32, tokens*logits)
	out := m.alloc(backend.BF16, all*s.Hidden)
	return backwardWork{
		plan: backend.PlanBackward{DY: dy, IDs: f.route.IDs, Weights: f.route.Weights, Z: f.route.Z, Rows: rows, Weight: weight},
		experts: backend.ExpertsBackward{DY: dy, Rows: rows, Weight: weight, Forward: f.plan.Rows,
			Routed: f.gateUp.Routed, Shared: f.gateUp.Shared, RoutedGrad: routed, SharedGrad: shared, DWeight: dweight},
		route: backend.RouteBackward{Rows: rows, DWeight: dweight, Logits: f.route.Logits, IDs: f.route.IDs,
			Weights: f.route.Weights, Z: f.route.Z, DLogits: dlogits, DZ: dz},
		rows: backend.RowsBackward{Rows: rows, RoutedGrad: routed, SharedGrad: shared, Out: out},
		input: backend.InputGradient{Rows: rows, In: out, IDs: f.route.IDs, DLogits: dlogits, DZ: dz,
			DX: m.alloc(backend.BF16, tokens*s.Hidden)},
		fold: backend.FoldArgs{X: f.route.X, DY: dy, Rows: rows, RoutedGrad: routed, SharedGrad: shared,
			IDs: f.route.IDs, DLogits: dlogits, DZ: dz},
	}
}

func newRowGradients(m *arena, n int) backend.RowGradients {
	return backend.RowGradients{DGate: m.alloc(backend.BF16, n), DUp: m.alloc(backend.BF16, n), HW: m.alloc(backend.BF16, n)}
}
