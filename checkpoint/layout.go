// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"fmt"

	"github.com/samebit/samebit/contract"
)

// The names that a layer's tensors may begin with: the prefix, the layer's number and a dot, the block.
const (
	Prefix         = "model.layers."
	LanguagePrefix = "model.language_model.layers."
	MLP            = "mlp."
	SparseMoE      = "block_sparse_moe."
)

// Layout is how a checkpoint names and joins the tensors of a layer.
type Layout struct {
	Prefix string // Prefix or LanguagePrefix
	Block  string // MLP or SparseMoE
	Fused  bool   // one tensor holds the matrices of all experts
}

// Role is what a matrix does in the layer.
type Role uint8

// The roles.
const (
	Router     Role = iota + 1 // [E,H]
	SharedGate                 // [1,H]
	Gate                       // [I,H]
	Up                         // [I,H]
	Down                       // [H,I]
)

// String names the role: router, shared-gate, gate, up or down.
func (r Role) String() string {
	return [...]string{"no role", "router", "shared-gate", "gate", "up", "down"}[r]
}

// Part is one matrix of the layer: the router, the shared expert's gate, or a gate, up or down matrix of an expert.
type Part struct {
	Role   Role
	Expert int  // which expert's, where Shared is false
	Shared bool // the shared expert's
}

// In gives the place of the part in w, whose experts must be there.
func (p Part) In(w *contract.Weights) *[]contract.BF16 {
	e := expert(p, w.Experts, w.Shared)
	return place(p.Role, &w.Router, &w.SharedGate, &e.Gate, &e.Up, &e.Down)
}

// InGradients gives the place of the part's gradient in g, whose experts must be there.
func (p Part) InGradients(g *contract.Gradients) *[]float32 {
	e := expert(p, g.Experts, g.Shared)
	return place(p.Role, &g.Router, &g.SharedGate, &e.Gate, &e.Up, &e.Down)
}

// expert is the one that the part belongs to; for the router and the shared gate, one of no use.
func expert[T any](p Part, experts []T, shared *T) *T {
	switch {
	case p.Role < Gate:
		return new(T)
	case p.Shared:
		return shared
	}
	return &experts[p.Expert]
}

// place is the role's own among the five.
func place[T any](r Role, router, sharedGate, gate, up, down T) T {
	return map[Role]T{Router: router, SharedGate: sharedGate, Gate: gate, Up: up, Down: down}[r]
}

// Len is the number of elements of the part.
func (p Part) Len(s contract.Shape) int {
	switch {
	case p.Role == Router:
		return s.Experts * s.Hidden
	case p.Role == SharedGate:
		return s.Hidden
	case p.Shared:
		return s.SharedWidth * s.Hidden
	default:
		return s.Width * s.Hidden
	}
}

// within is those of the part's elements that a part of the layer needs.
func (p Part) within(of contract.Part) contract.Range {
	e, width := p.Expert, of.Width
	if p.Shared {
		e, width = of.Shape.Experts, of.Shared
	}
	switch {
	case p.Role == Router || p.Role == SharedGate:
		return contract.Range{To: p.Len(of.Shape)}
	case of.WidthOf(e) == 0:
		return contract.Range{}
	case p.Role == Down:
		return contract.Range{To: p.Len(of.Shape)}
	default:
		return contract.Range{From: width.From * of.Shape.Hidden, To: width.To * of.Shape.Hidden}
	}
}

// within is those of the tensor's elements that a part of the layer needs; neighbours are joined.
func (e *Entry) within(of contract.Part) (elements []contract.Range) {
	at := 0
	for _, p := range e.Parts {
		r := p.within(of)
		from, to := at+r.From, at+r.To
		if at += p.Len(of.Shape); from == to {
			continue
		}
		if n := len(elements); n > 0 && elements[n-1].To == from {
			elements[n-1].To = to
		} else {
			elements = append(elements, contract.Range{From: from, To: to})
		}
	}
	return elements
}

// Entry is one tensor of a layer: the parts, one after the other, are its elements in row-major order.
type Entry struct {
	Name  string // in the checkpoint
	Short string // without prefix and layer: mlp.experts.0.gate_proj.weight
	Shape []int
	Parts []Part
}

// Entries are the tensors that a layer of shape s has in this layout: the router, the experts in ascending order, the shared expert.
func (l Layout) Entries(layer int, s contract.Shape) []Entry {
	var entries []Entry
	add := func(name string, shape []int, parts ...Part) {
		short := l.Block + name
		entries = append(entries, Entry{Name: fmt.Sprintf("%s%d.%s", l.Prefix, layer, short), Short: short, Shape: shape, Parts: parts})
	}
	add("gate.weight", []int{s.Experts, s.Hidden}, Part{Role: Router})
	if l.Fused {
		var gateUp, down []Part
		for e := range s.Experts {
			gateUp = append(gateUp, Part{Role: Gate, Expert: e}, Part{Role: Up, Expert: e})
			down = append(down, Part{Role: Down, Expert: e})
		}
		add("experts.gate_up_proj", []int{s.Experts, 2 * s.Width, s.Hidden}, gateUp...)
		add("experts.down_proj", []int{s.Experts, s.Hidden, s.Width}, down...)
	} else {
		gate, up, down := "gate_proj", "up_proj", "down_proj"
		if l.Block == SparseMoE {
			gate, up, down = "w1", "w3", "w2"
		}
		for e := range s.Experts {
			add(fmt.Sprintf("experts.%d.%s.weight", e, gate), []int{s.Width, s.Hidden}, Part{Role: Gate, Expert: e})
			add(fmt.Sprintf("experts.%d.%s.weight", e, up), []int{s.Width, s.Hidden}, Part{Role: Up, Expert: e})
			add(fmt.Sprintf("experts.%d.%s.weight", e, down), []int{s.Hidden, s.Width}, Part{Role: Down, Expert: e})
		}
	}
	if s.SharedWidth > 0 {
		add("shared_expert.gate_proj.weight", []int{s.SharedWidth, s.Hidden}, Part{Role: Gate, Shared: true})
		add("shared_expert.up_proj.weight", []int{s.SharedWidth, s.Hidden}, Part{Role: Up, Shared: true})
		add("shared_expert.down_proj.weight", []int{s.Hidden, s.SharedWidth}, Part{Role: Down, Shared: true})
		add("shared_expert_gate.weight", []int{1, s.Hidden}, Part{Role: SharedGate})
	}
	return entries
}
