// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
)

// stack is experts of one width, as a tensor-parallel rank has them: sliced by what each product puts out. To the backend below
// each slice is a layer of its own, whose tokens have one expert each: what a token is here is a row elsewhere.
//
// For the slice of I a column of down is a row of gate and up; for that of H a row of down is a column of gate and up:
//
//	            inner, of I               outer, of H
//	forward     gate, up [W,H]            down [O,I]
//	backward    down [H,W], for q         gate, up [I,O], for the row of dx
//
// The gradients are those of the inner slice.
type stack struct {
	*machine
	hidden, width, experts int

	outputs contract.Range // of H, that outer makes
	inner   []slice        // blocks of this rank's share of I
	outer   slice
}

// slice is a part of a stack as a layer of the backend below.
type slice struct {
	columns contract.Range // of I for an inner slice, of H for the outer one
	weights *contract.Weights
	layer   backend.Layer
}

// within is a slice's columns as columns of a range that they are in.
func (b *slice) within(r contract.Range) contract.Range {
	return contract.Range{From: b.columns.From - r.From, To: b.columns.To - r.From}
}

// newStack is a stack whose weights are still to come.
func (m *machine) newStack(hidden, width, experts int) *stack {
	s := &stack{machine: m, hidden: hidden, width: width, experts: experts, outputs: m.Grid.Outputs(m.tp, hidden)}
	for _, r := range m.Grid.Blocks(m.Grid.Inner(m.tp, width), width) {
		s.inner = append(s.inner, slice{columns: r})
	}
	s.outer.columns = s.outputs
	return s
}

// mine is this rank's share of I.
func (s *stack) mine() contract.Range { return s.Grid.Inner(s.tp, s.width) }

// shares is every tensor-parallel rank's share of I.
func (s *stack) shares() []contract.Range {
	var all []contract.Range
	for tp := range s.Grid.TP {
		all = append(all, s.Grid.Inner(tp, s.width))
	}
	return all
}

// alone says that nothing is sliced.
func (s *stack) alone() bool { return s.Grid.TP == 1 }

// shape is that of a slice as a layer.
func (s *stack) shape(hidden, width int) contract.Shape {
	return contract.Shape{Hidden: hidden, Experts: s.experts, TopK: 1, Width: width, NormTopK: true}
}

// cut makes the slices' weights of this rank's share of each expert, gate and up [W,H] and down [H,W], and of what the others of
// its column send of theirs. All of the column must call it.
func (s *stack) cut(own []contract.Expert) error {
	share := s.mine()
	for i := range s.inner {
		b := &s.inner[i]
		at := b.within(share)
		w := s.router(&b.weights, s.hidden)
		for e := range own {
			x := &own[e]
			w.Experts[e].Gate, w.Experts[e].Up = x.Gate[at.From*s.hidden:at.To*s.hidden], x.Up[at.From*s.hidden:at.To*s.hidden]
			w.Experts[e].Down = columnsOf(x.Down, share.Len(), at)
		}
	}
	if s.alone() {
		return nil
	}
	w, x := s.router(&s.outer.weights, s.outputs.Len()), s.newCrossing()
	for e := range own {
		if err := x.expert(&w.Experts[e], &own[e]); err != nil {
			return err
		}
	}
	return nil
}

// router gives a slice's weights the first time, with a router of zeros.
func (s *stack) router(w **contract.Weights, hidden int) *contract.Weights {
	if *w == nil {
		*w = &contract.Weights{Router: make([]BF16, s.experts*hidden), Experts: make([]contract.Expert, s.experts)}
	}
	return *w
}

// drop forgets the experts' weights, of which the layers below have copies: they are looked for in the same place by the next
// Refresh, ahead of which cut makes them again.
func (s *stack) drop() {
	for i := range s.inner {
		clear(s.inner[i].weights.Experts)
	}
	if !s.alone() {
		clear(s.outer.weights.Experts)
	}
}

// crossing makes outer slices of the inner slices of the column, an expert after the other through the same memory.
type crossing struct {
	*stack
	outs, ins  []contract.Range // what each rank of the column makes of H, and has of I
	send, recv [][]BF16         // of each, an expert's
}

func (s *stack) newCrossing() *crossing {
	x := &crossing{stack: s, outs: shares(s.Grid.TP, s.hidden), ins: s.shares()}
	for r := range x.outs {
		x.send = append(x.send, make([]BF16, 0, 3*x.outs[r].Len()*s.mine().Len()))
		x.recv = append(x.recv, make([]BF16, 3*x.ins[r].Len()*s.outputs.Len()))
	}
	return x
}

func (x *crossing) expert(outer, own *contract.Expert) error {
	for r, to := range x.outs {
		send := appendColumns(appendColumns(x.send[r][:0], own.Gate, x.hidden, to), own.Up, x.hidden, to)
		x.send[r] = append(send, own.Down[to.From*x.mine().Len():to.To*x.mine().Len()]...)
	}
	if err := allToAllInto(x.column, x.recv, x.send); err != nil {
		return err
	}
	n := x.outputs.Len()
	gate, up, down := make([]BF16, 0, x.width*n), make([]BF16, 0, x.width*n), make([]BF16, x.width*n)
	for r, from := range x.ins {
		part, got := from.Len()*n, x.recv[r]
		gate, up = append(gate, got[:part]...), append(up, got[part:2*part]...)
		setColumns(down, x.width, from, got[2*part:])
	}
	outer.Gate, outer.Up, outer.Down = gate, up, down
	return nil
}

// load makes layers of the slices; copied is told of the experts' matrices, once for each.
func (s *stack) load(copied func([]BF16)) (err error) {
	for i := range s.inner {
		b := &s.inner[i]
		copied := func(w []BF16) {
			if len(w) > 0 && &w[0] != &b.weights.Router[0] {
				copied(w)
			}
		}
		b.layer, err = s.Backend.Load(backend.Spec{Shape: s.shape(s.hidden, b.columns.Len()), Weights: b.weights, Copied: copied})
		if err != nil {
			return err
		}
	}
	if s.alone() {
		s.outer.layer = s.inner[0].layer
		return nil
	}
	s.outer.layer, err = s.Backend.Load(backend.Spec{Shape: s.shape(s.outputs.Len(), s.width), Weights: s.outer.weights})
	return err
}

// layers are the slices' layers.
func (s *stack) layers() []backend.Layer {
	var all []backend.Layer
	for _, b := range s.inner {
		all = append(all, b.layer)
	}
	if !s.alone() {
		all = append(all, s.outer.layer)
	}
	return all
}
