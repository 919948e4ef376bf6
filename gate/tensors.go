// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"

	"github.com/samebit/samebit/contract"
)

// What a pass has, by name, to be compared.

func (p pass) output() tensor { return matrix("y", "token", "column", p.Hidden, p.y) }

func (p pass) routes() []tensor {
	return []tensor{
		matrix("logits", "token", "expert", p.Experts, p.logits),
		matrix("ids", "token", "slot", p.TopK, p.ids),
		matrix("weights", "token", "slot", p.TopK, p.weights),
	}
}

// forward is what a forward gives.
func (p pass) forward() []tensor { return append(p.routes(), p.output()) }

// inputGradient is dx, and nothing where there was no backward.
func (p pass) inputGradient() []tensor {
	if p.dx == nil {
		return nil
	}
	return []tensor{matrix("dx", "token", "column", p.Hidden, p.dx)}
}

// tokens is all that each token has of its own.
func (p pass) tokens() []tensor { return append(p.forward(), p.inputGradient()...) }

// everything is what the tokens and the weights have.
func (p pass) everything() []tensor {
	if p.grads == nil {
		return p.tokens()
	}
	return slices.Concat(p.tokens(), p.replicated(), p.experts())
}

// replicated are the gradients that every rank has in full.
func (p pass) replicated() []tensor {
	tensors := []tensor{matrix("dW router", "expert", "column", p.Hidden, p.grads.Router)}
	if p.grads.Shared != nil {
		tensors = append(tensors, matrix("dW shared gate", "row", "column", p.Hidden, p.grads.SharedGate))
	}
	return tensors
}

// experts are the gradients of the experts' matrices.
func (p pass) experts() []tensor {
	var tensors []tensor
	for _, r := range roles {
		t := tensor{name: "dW " + r.name, axes: []string{"expert", "row", "column"}}
		for e := range p.grads.Experts {
			t.parts = append(t.parts, matrix(t.name, "", "", r.columns(p.Shape), r.of(&p.grads.Experts[e])).parts...)
		}
		tensors = append(tensors, t)
	}
	if p.grads.Shared != nil {
		shared := p.Shape
		shared.Width = p.SharedWidth
		for _, r := range roles {
			tensors = append(tensors, matrix("dW shared "+r.name+"_proj", "row", "column", r.columns(shared), r.of(p.grads.Shared)))
		}
	}
	return tensors
}

// role is one of an expert's three matrices.
type role struct {
	name    string
	of      func(*contract.ExpertGradient) []float32
	columns func(contract.Shape) int
}

var roles = []role{
	{"gate", func(e *contract.ExpertGradient) []float32 { return e.Gate }, func(s contract.Shape) int { return s.Hidden }},
	{"up", func(e *contract.ExpertGradient) []float32 { return e.Up }, func(s contract.Shape) int { return s.Hidden }},
	{"down", func(e *contract.ExpertGradient) []float32 { return e.Down }, func(s contract.Shape) int { return s.Width }},
}
