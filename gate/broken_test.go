// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
)

// broken is the cpu backend with one fault. A hook runs in place of a stage, or after it.
type broken struct {
	backend.Backend
	hooks hooks
}

type hooks struct {
	spec         func(*backend.Spec)
	route        func(l *brokenLayer, a backend.Route) error
	gateUp       func(l *brokenLayer, a backend.GateUp)
	combine      func(l *brokenLayer, a backend.Combine)
	planBackward func(l *brokenLayer, a backend.PlanBackward)
	add          func(f backend.Fold) // after Fold.Add
	unwritten    int                  // an element of y that Combine leaves as it was
}

// faultsOf are the hooks of broken backends by name.
var faultsOf = map[string]hooks{}

// breakBackend registers a backend with these faults, in place of those that it had when the test ran before.
func breakBackend(name string, h hooks) {
	_, known := faultsOf[name]
	faultsOf[name] = h
	if known {
		return
	}
	backend.Register(name, func(o backend.Options) (backend.Backend, error) {
		b, err := backend.Open("cpu", o)
		return &broken{b, faultsOf[name]}, err
	})
}

func (b *broken) Load(s backend.Spec) (backend.Layer, error) {
	l := &brokenLayer{m: b.Backend, hooks: b.hooks, shape: s.Shape}
	if b.hooks.spec != nil {
		b.hooks.spec(&s)
	}
	var err error
	if l.Layer, err = b.Backend.Load(s); err != nil {
		return nil, err
	}
	s.BF16Logits = true
	l.bf16, err = b.Backend.Load(s)
	return l, err
}

// brokenLayer is a layer with faults.
type brokenLayer struct {
	backend.Layer
	bf16  backend.Layer // the same with BF16 logits
	m     backend.Memory
	hooks hooks
	shape contract.Shape
	calls int // of Combine
}

func (l *brokenLayer) Route(a backend.Route) error {
	if l.hooks.route != nil {
		return l.hooks.route(l, a)
	}
	return l.Layer.Route(a)
}

func (l *brokenLayer) GateUp(a backend.GateUp) error {
	err := l.Layer.GateUp(a)
	if l.hooks.gateUp != nil {
		l.hooks.gateUp(l, a)
	}
	return err
}

func (l *brokenLayer) Combine(a backend.Combine) error {
	before := look[BF16](l, a.Y)
	err := l.Layer.Combine(a)
	if l.calls++; l.hooks.combine != nil {
		l.hooks.combine(l, a)
	}
	if i := l.hooks.unwritten; i > 0 && i < len(before) {
		edit(l, a.Y, func(y []BF16) { y[i] = before[i] })
	}
	return err
}

func (l *brokenLayer) PlanBackward(a backend.PlanBackward) error {
	if l.hooks.planBackward != nil {
		l.hooks.planBackward(l, a)
	}
	return l.Layer.PlanBackward(a)
}

func (l *brokenLayer) NewFold(g *backend.Gradients) (backend.Fold, error) {
	f, err := l.Layer.NewFold(g)
	if l.hooks.add != nil {
		return brokenFold{f, l.hooks.add}, err
	}
	return f, err
}

type brokenFold struct {
	backend.Fold
	after func(backend.Fold)
}

func (f brokenFold) Add(a backend.FoldArgs) error {
	err := f.Fold.Add(a)
	f.after(f.Fold)
	return err
}

// edit changes a buffer's elements.
func edit[T safetensors.Element](l *brokenLayer, b backend.Buffer, change func([]T)) {
	v := make([]T, b.Len())
	if err := l.m.Read(safetensors.Bytes(v), b); err != nil {
		panic(err)
	}
	change(v)
	if err := l.m.Write(b, safetensors.Bytes(v)); err != nil {
		panic(err)
	}
}

// look gives a buffer's elements.
func look[T safetensors.Element](l *brokenLayer, b backend.Buffer) (elements []T) {
	edit(l, b, func(v []T) { elements = v })
	return elements
}

// changeRouter gives the layer another router.
func changeRouter(s *backend.Spec) {
	w := *s.Weights
	w.Router = append([]BF16(nil), w.Router...)
	w.Router[1] ^= 0x40
	s.Weights = &w
}
