// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"math"
	"slices"

	"github.com/samebit/samebit/contract"
)

// layer64 is the layer in float64 on the BF16 weights, straight from its definition: what results are measured against.
type layer64 struct {
	contract.Shape
	w *contract.Weights
}

// row64 is one token's work in one expert.
type row64 struct {
	token      int
	weight     float64
	g, u, h    []float64 // [I]
	y          []float64 // [H], before the weight
	dg, du, hw []float64 // [I]
}

// pass64 is all that the layer gives for some tokens.
type pass64 struct {
	layer64
	x, dy     [][]float64
	logits    [][]float64 // [T,E]
	y, dx     []float64   // [T,H]
	rows      [][]row64   // of each expert, in token order; the shared one is expert E
	router    []float64   // [E,H], the gradient
	sharedRow []float64   // [H], that of the shared gate
}

// run takes tokens forward and backward, over the given routes [T,K], or its own where ids is nil.
func (l layer64) run(x, dy []BF16, ids []int32) *pass64 {
	h := l.Hidden
	p := &pass64{layer64: l, rows: make([][]row64, l.Experts+1), router: make([]float64, l.Experts*h), sharedRow: make([]float64, h)}
	for t := range len(x) / h {
		var routes []int32
		if ids != nil {
			routes = ids[t*l.TopK : (t+1)*l.TopK]
		}
		p.token(t, wide(x[t*h:(t+1)*h]), wide(dy[t*h:(t+1)*h]), routes)
	}
	return p
}

// token adds one token.
func (p *pass64) token(t int, x, dy []float64, ids []int32) {
	logits := times(p.w.Router, x)
	p.x, p.dy, p.logits = append(p.x, x), append(p.dy, dy), append(p.logits, logits)
	if ids == nil {
		ids = p.top(logits)
	}
	weights, all := p.weigh(logits, ids)
	y, dx := make([]float64, p.Hidden), make([]float64, p.Hidden)

	// Experts, forward and backward.
	dw := make([]float64, len(ids))
	mean := 0.0
	for k, e := range ids {
		dw[k] = p.expert(int(e), &p.w.Experts[e], t, x, dy, weights[k], y, dx)
		mean += weights[k] * dw[k]
	}
	// Router: the gradient of a softmax.
	for e := range logits {
		k := slices.Index(ids, int32(e))
		dl := 0.0
		switch {
		case k >= 0:
			dl = weights[k] * (dw[k] - mean)
		case !p.NormTopK:
			dl = all[e] * -mean
		}
		row := wide(p.w.Router[e*p.Hidden : (e+1)*p.Hidden])
		for j := range x {
			p.router[e*p.Hidden+j] += dl * x[j]
			dx[j] += dl * row[j]
		}
	}
	if p.w.Shared != nil {
		gate := wide(p.w.SharedGate)
		s := sigmoid(dot(gate, x))
		dz := p.expert(p.Experts, p.w.Shared, t, x, dy, s, y, dx) * s * (1 - s)
		for j := range x {
			p.sharedRow[j] += dz * x[j]
			dx[j] += dz * gate[j]
		}
	}
	p.y, p.dx = append(p.y, y...), append(p.dx, dx...)
}

// expert adds one row to y and dx, and gives the gradient of its weight.
func (p *pass64) expert(e int, w *contract.Expert, t int, x, dy []float64, weight float64, y, dx []float64) float64 {
	r := row64{token: t, weight: weight, g: times(w.Gate, x), u: times(w.Up, x)}
	r.h, r.hw, r.dg, r.du = make([]float64, len(r.g)), make([]float64, len(r.g)), make([]float64, len(r.g)), make([]float64, len(r.g))
	for i, g := range r.g {
		r.h[i] = g * sigmoid(g) * r.u[i]
		r.hw[i] = r.h[i] * weight
	}
	out := times(w.Down, r.h)
	for j := range y {
		y[j] += weight * out[j]
	}
	dh := transposed(w.Down, dy, len(r.h))
	for i, g := range r.g {
		s := sigmoid(g)
		r.du[i] = dh[i] * weight * g * s
		r.dg[i] = dh[i] * weight * r.u[i] * s * (1 + g*(1-s))
	}
	gate, up := transposed(w.Gate, r.dg, len(x)), transposed(w.Up, r.du, len(x))
	for j := range dx {
		dx[j] += gate[j] + up[j]
	}
	p.rows[e] = append(p.rows[e], r)
	return dot(dy, out)
}

// top are the ids of the largest logits, the first of equals.
func (l layer64) top(logits []float64) []int32 {
	ids := make([]int32, len(logits))
	for e := range ids {
		ids[e] = int32(e)
	}
	slices.SortStableFunc(ids, func(a, b int32) int {
		switch {
		case logits[a] > logits[b]:
			return -1
		case logits[a] < logits[b]:
			return 1
		}
		return 0
	})
	return ids[:l.TopK]
}

// weigh gives the weights of the selected, and the softmax over all.
func (l layer64) weigh(logits []float64, ids []int32) (weights, all []float64) {
	all = make([]float64, len(logits))
	largest, total := slices.Max(logits), 0.0
	for e, v := range logits {
		all[e] = math.Exp(v - largest)
		total += all[e]
	}
	selected := 0.0
	for e := range all {
		all[e] /= total
	}
	for _, e := range ids {
		weights = append(weights, all[e])
		selected += all[e]
	}
	if l.NormTopK {
		for k := range weights {
			weights[k] /= selected
		}
	}
	return weights, all
}

// gradient gives one matrix of the gradients of expert e: the sum over its rows of an outer product.
func (p *pass64) gradient(e int, role string) []float64 {
	width := p.Width
	if e == p.Experts {
		width = p.SharedWidth
	}
	sum := make([]float64, width*p.Hidden)
	for _, r := range p.rows[e] {
		left, right := r.dg, p.x[r.token] // [I] times [H]
		switch role {
		case "up":
			left = r.du
		case "down":
			left, right = p.dy[r.token], r.hw // [H] times [I]
		}
		for i, v := range left {
			row := sum[i*len(right) : (i+1)*len(right)]
			for j, w := range right {
				row[j] += v * w
			}
		}
	}
	return sum
}

func sigmoid(v float64) float64 { return 1 / (1 + math.Exp(-v)) }

// wide is v in float64.
func wide(v []BF16) []float64 {
	w := make([]float64, len(v))
	for i := range v {
		w[i] = float64(v[i].Float32())
	}
	return w
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// times is m [n, len(v)] times v.
func times(m []BF16, v []float64) []float64 {
	out := make([]float64, len(m)/len(v))
	for i := range out {
		row := m[i*len(v) : (i+1)*len(v)]
		for j, w := range row {
			out[i] += float64(w.Float32()) * v[j]
		}
	}
	return out
}

// transposed is v times m [len(v), n].
func transposed(m []BF16, v []float64, n int) []float64 {
	out := make([]float64, n)
	for i, a := range v {
		row := m[i*n : (i+1)*n]
		for j, w := range row {
			out[j] += a * float64(w.Float32())
		}
	}
	return out
}
