// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package ref is the oracle as a backend: each stage is the contract's own scalar function in a plain loop, on one
// goroutine. It is slow, and right by construction.
package ref

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

func init() {
	backend.Register("ref", func(backend.Options) (backend.Backend, error) { return Backend{&host.Memory{}}, nil })
}

// Backend implements backend.Backend.
type Backend struct{ *host.Memory }

func (Backend) Name() string   { return "ref" }
func (Backend) Device() string { return "the contract in scalar Go, one goroutine" }
func (Backend) Close() error   { return nil }

// Load copies the weights.
func (Backend) Load(s backend.Spec) (backend.Layer, error) {
	if err := s.Weights.Check(s.Shape); err != nil {
		return nil, err
	}
	l := &layer{s.Shape, s.Weights, s.Shape.NewWeights(), s.BF16Logits, s.Copied}
	return l, l.Refresh()
}

type layer struct {
	contract.Shape
	given, w   *contract.Weights
	bf16Logits bool
	copied     func([]contract.BF16) // of backend.Spec
}

func (*layer) Close() error { return nil }

// Refresh copies the weights again, and refuses those that are not finite (R13).
func (l *layer) Refresh() error {
	l.copy(l.w.Router, l.given.Router)
	l.copy(l.w.SharedGate, l.given.SharedGate)
	for e := range l.w.Experts {
		l.copyExpert(&l.w.Experts[e], &l.given.Experts[e])
	}
	if l.w.Shared != nil {
		l.copyExpert(l.w.Shared, l.given.Shared)
	}
	return l.w.CheckFinite()
}

func (l *layer) copyExpert(dst, src *contract.Expert) {
	l.copy(dst.Gate, src.Gate)
	l.copy(dst.Up, src.Up)
	l.copy(dst.Down, src.Down)
}

func (l *layer) copy(dst, src []contract.BF16) {
	copy(dst, src)
	if l.copied != nil {
		l.copied(src)
	}
}

// expert is the weights of group e, the shared expert being group E.
func (l *layer) expert(e int) *contract.Expert {
	if e == l.Experts {
		return l.w.Shared
	}
	return &l.w.Experts[e]
}

// row is row i of a matrix of n columns.
func row[T any](m []T, i, n int) []T { return m[i*n : (i+1)*n] }

// rows is a plan's view for loops over the experts' rows.
type rows struct {
	experts, slots             int
	offsets, token, slot, rows []int32
}

func (l *layer) rows(r backend.Rows) rows {
	return rows{l.Experts, r.Slots, host.I32(r.Offsets), host.I32(r.Token), host.I32(r.Slot), host.I32(r.Row)}
}

// each calls do for every row: its group, its index among all rows, and its index in its width's buffers, of which the
// shared expert has its own.
func (r rows) each(do func(e, row, at int)) {
	for e := range r.experts + 1 {
		base := int32(0)
		if e == r.experts {
			base = r.offsets[e]
		}
		for i := r.offsets[e]; i < r.offsets[e+1]; i++ {
			do(e, int(i), int(i-base))
		}
	}
}
