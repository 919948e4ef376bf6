// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract

// Range is the numbers from From to To, without To.
type Range struct{ From, To int }

// Len is how many numbers the range has.
func (r Range) Len() int { return r.To - r.From }

// Has says whether i is in the range.
func (r Range) Has(i int) bool { return r.From <= i && i < r.To }

// Part is a part of a layer's weights, and of their gradients: the router and the shared gate whole; some experts; and of each
// of these and of the shared expert a range of the I numbers that lie between gate and up and down. A range of W of them is W
// rows of gate and up, [W,H], and W columns of down, [H,W].
type Part struct {
	Shape         Shape // of the whole layer
	Experts       Range
	Width, Shared Range
}

// Whole is the part that is everything.
func (s Shape) Whole() Part {
	return Part{s, Range{0, s.Experts}, Range{0, s.Width}, Range{0, s.SharedWidth}}
}

// WidthOf is how much of expert e's width the part has, 0 for one that is not in it. Expert E is the shared one.
func (p Part) WidthOf(e int) int {
	switch {
	case e == p.Shape.Experts:
		return p.Shared.Len()
	case p.Experts.Has(e):
		return p.Width.Len()
	}
	return 0
}

// Size is how many elements the part has.
func (p Part) Size() int {
	s := p.Shape
	n := s.Experts*s.Hidden + 3*p.Experts.Len()*s.Hidden*p.Width.Len()
	if s.SharedWidth > 0 {
		n += s.Hidden + 3*s.Hidden*p.Shared.Len()
	}
	return n
}

// NewWeights are all +0. The matrices of experts that are not in the part are empty.
func (p Part) NewWeights() *Weights { return p.WeightsIn(make([]BF16, p.Size())) }

// WeightsIn are weights that lie in v, of Size elements.
func (p Part) WeightsIn(v []BF16) *Weights {
	c, s := cutter[BF16]{p, v}, p.Shape
	w := &Weights{Router: c.cut(s.Experts * s.Hidden), Experts: make([]Expert, s.Experts)}
	for e := range w.Experts {
		x := &w.Experts[e]
		x.Gate, x.Up, x.Down = c.expert(e)
	}
	if s.SharedWidth > 0 {
		w.Shared, w.SharedGate = &Expert{}, c.cut(s.Hidden)
		w.Shared.Gate, w.Shared.Up, w.Shared.Down = c.expert(s.Experts)
	}
	return w
}

// NewGradients are all +0.
func (p Part) NewGradients() *Gradients { return p.GradientsIn(make([]float32, p.Size())) }

// GradientsIn are gradients that lie in v, of Size elements, and go on from its values.
func (p Part) GradientsIn(v []float32) *Gradients {
	c, s := cutter[float32]{p, v}, p.Shape
	g := &Gradients{Router: c.cut(s.Experts * s.Hidden), Experts: make([]ExpertGradient, s.Experts)}
	for e := range g.Experts {
		x := &g.Experts[e]
		x.Gate, x.Up, x.Down = c.expert(e)
	}
	if s.SharedWidth > 0 {
		g.Shared, g.SharedGate = &ExpertGradient{}, c.cut(s.Hidden)
		g.Shared.Gate, g.Shared.Up, g.Shared.Down = c.expert(s.Experts)
	}
	return g
}

// cutter cuts matrices off the front of memory.
type cutter[T any] struct {
	Part
	rest []T
}

func (c *cutter[T]) cut(n int) []T {
	v := c.rest[:n:n]
	c.rest = c.rest[n:]
	return v
}

func (c *cutter[T]) expert(e int) (gate, up, down []T) {
	n := c.Part.Shape.Hidden * c.WidthOf(e)
	return c.cut(n), c.cut(n), c.cut(n)
}
