// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit

import (
	"fmt"

	"github.com/samebit/samebit/backend"
)

// Tape is what a training forward keeps for its backward: x, routes and weights, and g and u in FP32, which Options.Recompute
// leaves out. A backward leaves it as it was, so that it can be used again.
type Tape struct {
	layer  *Layer
	number int64 // among the layer's
	tokens int
	chunks []chunk
	freed  bool
}

type chunk struct {
	from, to int
	work     work
	arena    *arena
}

// Bytes is how much memory the tape holds, on ranks with the rows that came from others to this one's experts: none of one that is
// nil, or was freed.
func (t *Tape) Bytes() (n int64) {
	if t == nil {
		return 0
	}
	for _, c := range t.chunks {
		for _, b := range c.arena.buffers {
			if s, ok := b.(backend.Sized); ok {
				n += s.Bytes()
			} else {
				n += int64(b.Len() * b.Dtype().Size())
			}
		}
	}
	return n
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
		err = l.unusable
	case err != nil:
	case tape != nil && tape.freed:
		err = fmt.Errorf("backward: the tape was freed: need one that was not")
	case tape == nil || tape.layer != l:
		err = fmt.Errorf("backward: no tape of this layer: need that of a Forward with Train")
	case g != nil && g.layer != l:
		err = fmt.Errorf("backward: gradients of another layer: need those of this layer's NewGradients")
	case g != nil && g.closed:
		err = fmt.Errorf("backward: %w: need ones that are not", errGradientsClosed)
	case tokens != tape.tokens:
		err = fmt.Errorf("backward: dy has %d tokens: need %d, as the tape has", tokens, tape.tokens)
	}
	call := backend.Call{Name: "backward", Tokens: tokens, Data: dy, Err: err}
	if tape != nil {
		call.Tape = tape.number
	}
	if g != nil {
		call.Fold = g.fold
	}
	if _, err = l.begin(call); err != nil {
		return nil, err
	}
	dx := make([]BF16, len(dy))
	for _, c := range tape.chunks {
		h := l.shape.Hidden
		if err := l.backwardChunk(c.work, rowsOf(dy, c.from, c.to, h), rowsOf(dx, c.from, c.to, h), g); err != nil {
			return nil, l.failed(err)
		}
	}
	return dx, nil
}

func (l *Layer) backwardChunk(f work, dy, dx []BF16, g *Gradients) error {
	m := &arena{machine: l.machine}
	if l.options.Recompute {
		l.newActivations(m, &f, true)
		m.run(func() error { return l.stages.GateUp(f.gateUp) })
	}
	w := l.newBackwardWork(m, f)
	w.between(m.alloc(backend.BF16, len(dy)), m.alloc(backend.BF16, len(dx)))
	put(m, w.plan.DY, dy)
	var fold backend.Fold
	if g != nil {
		m.run(g.begin)
		fold = g.fold
	}
	w.backward(m, l.stages, fold)
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

// backward asks for the stages; fold is nil where the weights' gradients are not wanted.
func (w *backwardWork) backward(m *arena, stages backend.Layer, fold backend.Fold) {
	m.run(func() error { return stages.PlanBackward(w.plan) })
	m.run(func() error { return stages.ExpertsBackward(w.experts) })
	m.run(func() error { return stages.RouteBackward(w.route) })
	m.run(func() error { return stages.RowsBackward(w.rows) })
	m.run(func() error { return stages.InputGradient(w.input) })
	if fold != nil {
		m.run(func() error { return fold.Add(w.fold) })
	}
}

// between has the backward read dy and write dx [T,H].
func (w *backwardWork) between(dy, dx backend.Buffer) {
	w.plan.DY, w.experts.DY, w.fold.DY, w.input.DX = dy, dy, dy, dx
}

// after has the backward take what a forward left, of no more tokens than there is room for.
func (w *backwardWork) after(f *work) {
	for _, r := range []*backend.Rows{&w.plan.Rows, &w.experts.Rows, &w.route.Rows, &w.rows.Rows, &w.input.Rows, &w.fold.Rows} {
		r.Tokens = f.route.Tokens
	}
	w.plan.IDs, w.plan.Weights, w.plan.Z = f.route.IDs, f.route.Weights, f.route.Z
	w.experts.Forward, w.experts.Routed, w.experts.Shared = f.plan.Rows, f.gateUp.Routed, f.gateUp.Shared
	w.route.Logits, w.route.IDs, w.route.Weights, w.route.Z = f.route.Logits, f.route.IDs, f.route.Weights, f.route.Z
	w.input.IDs, w.fold.IDs, w.fold.X = f.route.IDs, f.route.IDs, f.route.X
}

// newBackwardWork makes the buffers of the backward of a forward, but for dy and dx.
func (l *Layer) newBackwardWork(m *arena, f work) backwardWork {
	s, tokens := l.shape, f.route.Tokens
	rows := l.newRows(m, tokens)
	all := tokens * (s.TopK + 1)
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
	w := backwardWork{
		plan:    backend.PlanBackward{Rows: rows, Weight: weight},
		experts: backend.ExpertsBackward{Rows: rows, Weight: weight, RoutedGrad: routed, SharedGrad: shared, DWeight: dweight},
		route:   backend.RouteBackward{Rows: rows, DWeight: dweight, DLogits: dlogits, DZ: dz},
		rows:    backend.RowsBackward{Rows: rows, RoutedGrad: routed, SharedGrad: shared, Out: out},
		input:   backend.InputGradient{Rows: rows, In: out, DLogits: dlogits, DZ: dz},
		fold:    backend.FoldArgs{Rows: rows, RoutedGrad: routed, SharedGrad: shared, DLogits: dlogits, DZ: dz},
	}
	w.after(&f)
	return w
}

func newRowGradients(m *arena, n int) backend.RowGradients {
	return backend.RowGradients{DGate: m.alloc(backend.BF16, n), DUp: m.alloc(backend.BF16, n), HW: m.alloc(backend.BF16, n)}
}
