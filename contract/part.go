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
	w := &Weights{Experts: make([]Expert, p.Shape.Experts)}
	if p.Shape.SharedWidth > 0 {
		w.Shared = &Expert{}
	}
	lay(p, v, &w.Router, &w.SharedGate, w.Matrices)
	return w
}

// NewGradients are all +0.
func (p Part) NewGradients() *Gradients { return p.GradientsIn(make([]float32, p.Size())) }

// GradientsIn are gradients that lie in v, of Size elements, and go on from its values.
func (p Part) GradientsIn(v []float32) *Gradients {
	g := &Gradients{Experts: make([]ExpertGradient, p.Shape.Experts)}
	if p.Shape.SharedWidth > 0 {
		g.Shared = &ExpertGradient{}
	}
	lay(p, v, &g.Router, &g.SharedGate, g.Matrices)
	return g
}

// lay gives all matrices their places in memory, one behind the other.
func lay[T BF16 | float32](p Part, v []T, router, sharedGate *[]T, expert func(e int) Matrices[T]) {
	s := p.Shape
	cut := func(m *[]T, n int) { *m, v = v[:n:n], v[n:] }
	cutExpert := func(e int) {
		for _, m := range expert(e).All() {
			cut(m, s.Hidden*p.WidthOf(e))
		}
	}
	cut(router, s.Experts*s.Hidden)
	for e := range s.Experts {
		cutExpert(e)
	}
	if s.SharedWidth > 0 {
		cut(sharedGate, s.Hidden)
		cutExpert(s.Experts)
	}
}
