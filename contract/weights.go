// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract

import (
	"cmp"
	"fmt"
)

// Shape is what a layer's sizes are, and how it weighs its routes.
type Shape struct {
	Hidden      int  // H
	Experts     int  // E
	TopK        int  // K, 1 to E
	Width       int  // I, each expert's width
	SharedWidth int  // the shared expert's width; 0 where there is none
	NormTopK    bool // weights are normalised over the selected K (true) or over all E (false), R4
}

// Expert is one SwiGLU expert's weights, as a checkpoint stores them.
type Expert struct {
	Gate, Up []BF16 // [I,H]
	Down     []BF16 // [H,I]
}

// Weights are a layer's weights. The shared expert and its gate are both there or both nil.
type Weights struct {
	Router     []BF16 // [E,H]
	Experts    []Expert
	Shared     *Expert
	SharedGate []BF16 // [H]
}

// Size is how many elements the weights have, and their gradients.
func (s Shape) Size() int {
	n := s.Experts*s.Hidden + 3*s.Experts*s.Hidden*s.Width
	if s.SharedWidth > 0 {
		n += s.Hidden + 3*s.Hidden*s.SharedWidth
	}
	return n
}

// NewWeights are all +0.
func (s Shape) NewWeights() *Weights { return s.WeightsIn(make([]BF16, s.Size())) }

// WeightsIn are weights that lie in v, of Size elements.
func (s Shape) WeightsIn(v []BF16) *Weights {
	c := cutter[BF16]{s, v}
	w := &Weights{Router: c.cut(s.Experts * s.Hidden), Experts: make([]Expert, s.Experts)}
	for e := range w.Experts {
		x := &w.Experts[e]
		x.Gate, x.Up, x.Down = c.expert(s.Width)
	}
	if s.SharedWidth > 0 {
		w.Shared, w.SharedGate = &Expert{}, c.cut(s.Hidden)
		w.Shared.Gate, w.Shared.Up, w.Shared.Down = c.expert(s.SharedWidth)
	}
	return w
}

// NewGradients are all +0.
func (s Shape) NewGradients() *Gradients { return s.GradientsIn(make([]float32, s.Size())) }

// GradientsIn are gradients that lie in v, of Size elements, and go on from its values.
func (s Shape) GradientsIn(v []float32) *Gradients {
	c := cutter[float32]{s, v}
	g := &Gradients{Router: c.cut(s.Experts * s.Hidden), Experts: make([]ExpertGradient, s.Experts)}
	for e := range g.Experts {
		x := &g.Experts[e]
		x.Gate, x.Up, x.Down = c.expert(s.Width)
	}
	if s.SharedWidth > 0 {
		g.Shared, g.SharedGate = &ExpertGradient{}, c.cut(s.Hidden)
		g.Shared.Gate, g.Shared.Up, g.Shared.Down = c.expert(s.SharedWidth)
	}
	return g
}

// cutter cuts matrices off the front of memory.
type cutter[T any] struct {
	Shape
	rest []T
}

func (c *cutter[T]) cut(n int) []T {
	v := c.rest[:n:n]
	c.rest = c.rest[n:]
	return v
}

func (c *cutter[T]) expert(width int) (gate, up, down []T) {
	n := c.Hidden * width
	return c.cut(n), c.cut(n), c.cut(n)
}

// Check says what is wrong with a shape, or nil.
func (s Shape) Check() error {
	switch {
	case s.Hidden < 1 || s.Experts < 1 || s.Width < 1 || s.SharedWidth < 0:
		return fmt.Errorf("shape: hidden %d, experts %d, width %d and shared width %d: need at least 1, 1, 1 and 0",
			s.Hidden, s.Experts, s.Width, s.SharedWidth)
	case s.TopK < 1 || s.TopK > s.Experts:
		return fmt.Errorf("shape: top-k %d: need 1 to %d, the number of experts", s.TopK, s.Experts)
	}
	return nil
}

// Check says which weight does not have the shape's size, or nil.
func (w *Weights) Check(s Shape) error {
	c := sizes{s, "weights"}
	err := cmp.Or(s.Check(), c.size("router", len(w.Router), s.Experts*s.Hidden), c.experts(len(w.Experts), w.Shared != nil))
	for e := range w.Experts {
		x := &w.Experts[e]
		err = cmp.Or(err, c.expert(e, len(x.Gate), len(x.Up), len(x.Down)))
	}
	if x := w.Shared; x != nil {
		err = cmp.Or(err, c.expert(s.Experts, len(x.Gate), len(x.Up), len(x.Down)))
	}
	return cmp.Or(err, c.sharedGate(len(w.SharedGate)))
}

// Check says which accumulator does not have the shape's size, or nil.
func (g *Gradients) Check(s Shape) error {
	c := sizes{s, "gradients"}
	err := cmp.Or(s.Check(), c.size("router", len(g.Router), s.Experts*s.Hidden), c.experts(len(g.Experts), g.Shared != nil))
	for e := range g.Experts {
		x := &g.Experts[e]
		err = cmp.Or(err, c.expert(e, len(x.Gate), len(x.Up), len(x.Down)))
	}
	if x := g.Shared; x != nil {
		err = cmp.Or(err, c.expert(s.Experts, len(x.Gate), len(x.Up), len(x.Down)))
	}
	return cmp.Or(err, c.sharedGate(len(g.SharedGate)))
}

// sizes checks what weights and gradients have in common.
type sizes struct {
	Shape
	what string
}

func (c sizes) size(name string, have, need int) error {
	if have != need {
		return fmt.Errorf("%s: %s has %d elements: need %d", c.what, name, have, need)
	}
	return nil
}

func (c sizes) experts(have int, shared bool) error {
	if have != c.Experts {
		return fmt.Errorf("%s: %d experts: need %d", c.what, have, c.Experts)
	}
	if shared != (c.SharedWidth > 0) {
		return fmt.Errorf("%s: shared expert present: %t; need %t (shared width %d)", c.what, shared, c.SharedWidth > 0, c.SharedWidth)
	}
	return nil
}

// expert checks expert e, the shared one being expert E.
func (c sizes) expert(e, gate, up, down int) error {
	name, need := fmt.Sprintf("expert %d", e), c.Hidden*c.Width
	if e == c.Experts {
		name, need = "shared expert", c.Hidden*c.SharedWidth
	}
	return cmp.Or(c.size(name+" gate", gate, need), c.size(name+" up", up, need), c.size(name+" down", down, need))
}

func (c sizes) sharedGate(have int) error {
	need := 0
	if c.SharedWidth > 0 {
		need = c.Hidden
	}
	return c.size("shared gate", have, need)
}

// CheckFinite says which weight is the first that is not finite, or nil (R13).
func (w *Weights) CheckFinite() error {
	check := func(name string, v []BF16) error {
		for i, b := range v {
			if !b.Finite() {
				return fmt.Errorf("weights: %s has %v at %d: need finite values", name, b.Float32(), i)
			}
		}
		return nil
	}
	expert := func(name string, e *Expert) error {
		return cmp.Or(check(name+" gate", e.Gate), check(name+" up", e.Up), check(name+" down", e.Down))
	}
	err := cmp.Or(check("router", w.Router), check("shared gate", w.SharedGate))
	for e := range w.Experts {
		err = cmp.Or(err, expert(fmt.Sprintf("expert %d", e), &w.Experts[e]))
	}
	if w.Shared != nil {
		err = cmp.Or(err, expert("shared expert", w.Shared))
	}
	return err
}
