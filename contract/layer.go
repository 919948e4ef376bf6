// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract

import "slices"

// Layer is the whole layer, one token at a time: what every backend's batched, planned and parallel work must equal.
type Layer struct {
	Shape
	Weights    Weights
	BF16Logits bool // round the logits to BF16 (R2)
}

// Status says what becomes of a token.
type Status int32

const (
	Live     Status = iota
	Padding         // replayed as a row of -1: no work, y and dx are +0 (R3)
	Rejected        // a logit is not finite: y is NaN, no gradient comes from it (R13)
)

// Token is all that the forward makes of one token, and that its backward needs.
type Token struct {
	X       []BF16 // [H]
	Status  Status
	Logits  []float32 // [E]
	Z       float32   // the shared expert's gate logit
	IDs     []int32   // [K], -1 where the token is not live
	Weights []float32 // [K], +0 where the token is not live
	G, U    [][]float32
	Y       []BF16 // [H]
}

// Forward runs token x [H]. replay is nil or the ids [K] that replace selection: all -1, or distinct and in range.
func (l *Layer) Forward(x []BF16, replay []int32) Token {
	t := Token{X: x, Logits: make([]float32, l.Experts), IDs: make([]int32, l.TopK), Weights: make([]float32, l.TopK)}
	for e := range t.Logits {
		t.Logits[e] = Logit(x, row(l.Weights.Router, e, l.Hidden), l.BF16Logits)
	}
	if l.Weights.Shared != nil {
		t.Z = Logit(x, l.Weights.SharedGate, l.BF16Logits)
	}
	if t.Status = TokenStatus(t.Logits, t.Z, replay); t.Status != Live {
		for k := range t.IDs {
			t.IDs[k] = -1
		}
		t.Y = Workless(l.Hidden, t.Status)
		return t
	}
	if t.IDs = replay; replay == nil {
		t.IDs = Select(t.Logits, l.TopK)
	}
	t.Weights = RouteWeights(t.Logits, t.IDs, l.NormTopK)
	rows := make([][]BF16, l.TopK)
	for k, e := range t.IDs {
		rows[k] = t.run(&l.Weights.Experts[e])
	}
	var shared []BF16
	if l.Weights.Shared != nil {
		shared = t.run(l.Weights.Shared)
	}
	t.Y = Combine(rows, t.Weights, shared, t.Z)
	return t
}

func (t *Token) run(e *Expert) []BF16 {
	g, u, h := e.GateUp(t.X)
	t.G, t.U = append(t.G, g), append(t.U, u)
	return e.DownRow(h)
}

// TokenStatus is the status of a token with these logits [E], shared gate logit (0 where there is none) and replayed ids
// (nil for none), which are -1 throughout or not at all: the first tells. A row of -1 is padding whatever its logits are
// (R3, R13).
func TokenStatus(logits []float32, z float32, replay []int32) Status {
	if replay != nil && replay[0] == -1 {
		return Padding
	}
	if !finite(z) || slices.ContainsFunc(logits, func(v float32) bool { return !finite(v) }) {
		return Rejected
	}
	return Live
}

// Workless is the y [H] of a token that is not live: +0 for padding, NaN for a rejected one.
func Workless(hidden int, s Status) []BF16 {
	y := make([]BF16, hidden)
	if s == Rejected {
		for j := range y {
			y[j] = nanBF16
		}
	}
	return y
}

// Gradients are the gradients of a layer's weights: folds over the token stream, in FP32 (R10, R11).
type Gradients struct {
	Router     []float32 // [E,H]
	SharedGate []float32 // [H]
	Experts    []ExpertGradient
	Shared     *ExpertGradient
}

// Flush finishes every fold.
func (g *Gradients) Flush() {
	for e := range g.Experts {
		g.Experts[e].Flush()
	}
	if g.Shared != nil {
		g.Shared.Flush()
	}
}

// Backward gives the dx [H] of one token from its upstream gradient dy [H], and adds the token to the gradients. Tokens
// come in the order of the stream.
func (l *Layer) Backward(t Token, dy []BF16, grads *Gradients) []BF16 {
	if t.Status != Live || AllZero(dy) {
		return make([]BF16, l.Hidden)
	}
	dw := make([]float32, l.TopK)
	rows := make([][]BF16, l.TopK)
	for k, e := range t.IDs {
		expert := &l.Weights.Experts[e]
		r := expert.Backward(dy, t.G[k], t.U[k], t.Weights[k])
		dw[k], rows[k] = r.DWeight, expert.InputRow(r.DGate, r.DUp)
		grads.Experts[e].Add(t.X, dy, r)
	}
	ascending := slices.Clone(t.IDs)
	slices.Sort(ascending)
	inputs := make([][]BF16, l.TopK)
	for i, e := range ascending {
		inputs[i] = rows[slices.Index(t.IDs, e)]
	}

	dl := make([]float32, l.Experts)
	if l.NormTopK {
		for k, v := range RouteGradient(t.Weights, dw, t.IDs, nil, true) {
			dl[t.IDs[k]] = v
		}
	} else {
		copy(dl, RouteGradient(t.Weights, dw, t.IDs, Softmax(t.Logits), false))
		ascending = ascending[:0]
		for e := range dl {
			ascending = append(ascending, int32(e))
		}
	}
	var router []Scaled
	for _, e := range ascending {
		router = append(router, Scaled{dl[e], row(l.Weights.Router, int(e), l.Hidden)})
		FoldRouter(row(grads.Router, int(e), l.Hidden), dl[e], t.X)
	}

	if l.Weights.Shared != nil {
		r := l.Weights.Shared.Backward(dy, t.G[l.TopK], t.U[l.TopK], Sigmoid(t.Z))
		inputs = append(inputs, l.Weights.Shared.InputRow(r.DGate, r.DUp))
		grads.Shared.Add(t.X, dy, r)
		dz := SharedGateGradient(t.Z, r.DWeight)
		router = append(router, Scaled{dz, l.Weights.SharedGate})
		FoldRouter(grads.SharedGate, dz, t.X)
	}
	return InputGradient(l.Hidden, inputs, router)
}
