// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit

import (
	"slices"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/internal/host"
)

// arena is the buffers of one piece of work, freed together. Its first error stops all that follows, so that a list of
// stages reads without a check between any two.
type arena struct {
	machine backend.Memory
	buffers []backend.Buffer
	err     error
}

func (m *arena) alloc(d backend.Dtype, n int) backend.Buffer {
	if m.err != nil {
		return nil
	}
	b, err := m.machine.Alloc(d, n)
	if err != nil {
		m.err = err
		return nil
	}
	m.buffers = append(m.buffers, b)
	return b
}

func (m *arena) run(stage func() error) {
	if m.err == nil {
		m.err = stage()
	}
}

// free gives some buffers back ahead of the others.
func (m *arena) free(buffers ...backend.Buffer) {
	for _, b := range buffers {
		m.machine.Free(b)
		m.buffers = slices.DeleteFunc(m.buffers, func(have backend.Buffer) bool { return have == b })
	}
}

// close gives everything back and says the first error.
func (m *arena) close() error {
	for _, b := range m.buffers {
		m.machine.Free(b)
	}
	m.buffers = nil
	return m.err
}

func put[T any](m *arena, dst backend.Buffer, src []T) {
	m.run(func() error { return m.machine.Write(dst, host.Bytes(src)) })
}

func get[T any](m *arena, dst []T, src backend.Buffer) {
	m.run(func() error { return m.machine.Read(host.Bytes(dst), src) })
}

// work is the buffers of one forward, by stage.
type work struct {
	route   backend.Route
	plan    backend.Plan
	gateUp  backend.GateUp
	down    backend.Down
	combine backend.Combine
}

// forward asks for the stages.
func (w *work) forward(m *arena, stages backend.Layer) {
	m.run(func() error { return stages.Route(w.route) })
	m.run(func() error { return stages.Plan(w.plan) })
	m.run(func() error { return stages.GateUp(w.gateUp) })
	m.run(func() error { return stages.Down(w.down) })
	m.run(func() error { return stages.Combine(w.combine) })
}

// newWork makes the buffers, but for x and y.
func (l *Layer) newWork(m *arena, tokens int, train bool) work {
	s := l.shape
	slots := tokens * s.TopK
	route := backend.Route{
		Tokens:  tokens,
		Logits:  m.alloc(backend.FP32, tokens*s.Experts),
		Status:  m.alloc(backend.I32, tokens),
		IDs:     m.alloc(backend.I32, slots),
		Weights: m.alloc(backend.FP32, slots),
	}
	rows := l.newRows(m, tokens)
	if rows.Shared {
		route.Z = m.alloc(backend.FP32, tokens)
	}
	out := m.alloc(backend.BF16, tokens*(s.TopK+1)*s.Hidden)
	w := work{
		route:   route,
		plan:    backend.Plan{IDs: route.IDs, Rows: rows},
		gateUp:  backend.GateUp{Rows: rows},
		down:    backend.Down{Rows: rows, Out: out},
		combine: backend.Combine{Rows: rows, In: out, Weights: route.Weights, Z: route.Z, Status: route.Status},
	}
	l.newActivations(m, &w, train)
	return w
}

// newActivations makes the buffers of what the experts make of a forward's rows on the way: g and u too, where a backward follows.
func (l *Layer) newActivations(m *arena, w *work, train bool) {
	tokens, s := w.route.Tokens, l.shape
	of := func(n int) backend.Activations {
		a := backend.Activations{H: m.alloc(backend.BF16, n)}
		if train {
			a.G, a.U = m.alloc(backend.FP32, n), m.alloc(backend.FP32, n)
		}
		return a
	}
	w.gateUp.Routed = of(tokens * s.TopK * s.Width)
	if w.plan.Rows.Shared {
		w.gateUp.Shared = of(tokens * s.SharedWidth)
	}
	w.down.Routed, w.down.Shared = w.gateUp.Routed, w.gateUp.Shared
}

// between has the forward read x and write y [T,H].
func (w *work) between(x, y backend.Buffer) { w.route.X, w.gateUp.X, w.combine.Y = x, x, y }

// of has the forward take so many tokens, no more than there is room for.
func (w *work) of(tokens int) {
	w.route.Tokens = tokens
	for _, r := range []*backend.Rows{&w.plan.Rows, &w.gateUp.Rows, &w.down.Rows, &w.combine.Rows} {
		r.Tokens = tokens
	}
}

func (l *Layer) newRows(m *arena, tokens int) backend.Rows {
	s := l.shape
	all := tokens * (s.TopK + 1)
	return backend.Rows{
		Tokens: tokens, Slots: s.TopK, Shared: s.SharedWidth > 0,
		Offsets: m.alloc(backend.I32, s.Experts+2),
		Token:   m.alloc(backend.I32, all),
		Slot:    m.alloc(backend.I32, all),
		Row:     m.alloc(backend.I32, all),
	}
}
