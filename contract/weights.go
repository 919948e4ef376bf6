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
	Width       int  // I, each expert's width; 0 where the experts' matrices are elsewhere
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
func (s Shape) Size() int { return s.Whole().Size() }

// NewWeights are all +0.
func (s Shape) NewWeights() *Weights { return s.Whole().NewWeights() }

// NewGradients are all +0.
func (s Shape) NewGradients() *Gradients { return s.Whole().NewGradients() }

// GradientsIn are gradients that lie in v, of Size elements, and go on from its values.
func (s Shape) GradientsIn(v []float32) *Gradients { return s.Whole().GradientsIn(v) }

// Check says what is wrong with a shape, or nil.
func (s Shape) Check() error {
	switch {
	case s.Hidden < 1 || s.Experts < 1 || s.Width < 0 || s.SharedWidth < 0:
		return fmt.Errorf("shape: hidden %d, experts %d, width %d and shared width %d: need at least 1, 1, 0 and 0",
			s.Hidden, s.Experts, s.Width, s.SharedWidth)
	case s.TopK < 1 || s.TopK > s.Experts:
		return fmt.Errorf("shape: top-k %d: need 1 to %d, the number of experts", s.TopK, s.Experts)
	}
	return nil
}

// Matrices are an expert's matrices: its weights, or their gradients.
type Matrices[T BF16 | float32] struct {
	Gate, Up *[]T // [I,H]
	Down     *[]T // [H,I]
}

// All are gate, up and down.
func (m Matrices[T]) All() [3]*[]T { return [3]*[]T{m.Gate, m.Up, m.Down} }

// Matrices are those of expert e, the shared one being expert E.
func (w *Weights) Matrices(e int) Matrices[BF16] {
	x := w.Shared
	if e < len(w.Experts) {
		x = &w.Experts[e]
	}
	return Matrices[BF16]{&x.Gate, &x.Up, &x.Down}
}

// Matrices are those of expert e, the shared one being expert E.
func (g *Gradients) Matrices(e int) Matrices[float32] {
	x := g.Shared
	if e < len(g.Experts) {
		x = &g.Experts[e]
	}
	return Matrices[float32]{&x.Gate, &x.Up, &x.Down}
}

// Check says which weight does not have the shape's size, or nil.
func (w *Weights) Check(s Shape) error { return w.CheckPart(s.Whole()) }

// CheckPart says which weight does not have the part's size, or nil.
func (w *Weights) CheckPart(p Part) error {
	return checkPart(sizes{p, "weights"}, w.Router, w.SharedGate, len(w.Experts), w.Shared != nil, w.Matrices)
}

// Check says which accumulator does not have the shape's size, or nil.
func (g *Gradients) Check(s Shape) error { return g.CheckPart(s.Whole()) }

// CheckPart says which accumulator does not have the part's size, or nil.
func (g *Gradients) CheckPart(p Part) error {
	return checkPart(sizes{p, "gradients"}, g.Router, g.SharedGate, len(g.Experts), g.Shared != nil, g.Matrices)
}

func checkPart[T BF16 | float32](c sizes, router, sharedGate []T, experts int, shared bool, expert func(e int) Matrices[T]) error {
	s, n := c.Part.Shape, experts
	if shared {
		n++
	}
	err := cmp.Or(s.Check(), c.size("router", len(router), s.Experts*s.Hidden), c.experts(experts, shared))
	for e := 0; e < n && err == nil; e++ {
		x := expert(e)
		err = c.expert(e, len(*x.Gate), len(*x.Up), len(*x.Down))
	}
	return cmp.Or(err, c.sharedGate(len(sharedGate)))
}

// sizes checks what weights and gradients have in common.
type sizes struct {
	Part
	what string
}

func (c sizes) size(name string, have, need int) error {
	if have != need {
		return fmt.Errorf("%s: %s has %d elements: need %d", c.what, name, have, need)
	}
	return nil
}

func (c sizes) experts(have int, shared bool) error {
	s := c.Part.Shape
	if have != s.Experts {
		return fmt.Errorf("%s: %d experts: need %d", c.what, have, s.Experts)
	}
	if shared != (s.SharedWidth > 0) {
		return fmt.Errorf("%s: shared expert present: %t; need %t (shared width %d)", c.what, shared, s.SharedWidth > 0, s.SharedWidth)
	}
	return nil
}

// expert checks expert e, the shared one being expert E.
func (c sizes) expert(e, gate, up, down int) error {
	name, need := fmt.Sprintf("expert %d", e), c.Part.Shape.Hidden*c.WidthOf(e)
	if e == c.Part.Shape.Experts {
		name = "shared expert"
	}
	return cmp.Or(c.size(name+" gate", gate, need), c.size(name+" up", up, need), c.size(name+" down", down, need))
}

func (c sizes) sharedGate(have int) error {
	need := 0
	if c.Part.Shape.SharedWidth > 0 {
		need = c.Part.Shape.Hidden
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
