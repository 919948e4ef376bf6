// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit

import (
	"errors"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// Gradients are the gradients of a layer's weights: a fold over the token stream of all the Backward calls that add to it,
// so that they have the same bits however the stream is cut into micro-batches (R11). Calls must come one at a time, in
// the stream's order.
//
// The caller's memory is worked on in place by a backend whose memory is the host's. Others work on a double of it, as large,
// which they keep until Close: the stream's first Backward reads the caller's FP32 accumulators, and Flush writes the caller's
// memory. In between, what the caller's memory holds does not matter, and it is not touched.
type Gradients struct {
	layer   *Layer
	fp32    *contract.Gradients
	bf16    *contract.Weights
	fold    backend.Fold
	memory  *arena   // of the doubles
	doubles []double // none where the memory is used in place
	begun   bool     // the stream has had a Backward
	closed  bool
}

var errGradientsClosed = errors.New("the gradients are closed")

// double is a backend's own copy of the caller's memory.
type double struct {
	host []byte
	own  backend.Buffer
}

// NewGradients starts a stream that is added, in place, to the FP32 accumulators into (a trainer's main_grad), laid out as
// the weights; nil for new ones of +0. On ranks the accumulators of what several have, the router, the shared gate and a share of
// the shared expert, must have the same bits on each: those of a stream's first Backward are compared.
func (l *Layer) NewGradients(into *contract.Gradients) (*Gradients, error) {
	if into == nil {
		into = l.part.GradientsIn(host.Floats(l.part.Size()))
	}
	if err := into.CheckPart(l.part); err != nil {
		return nil, err
	}
	return newGradients(&Gradients{layer: l, fp32: into}, into.Router, into.SharedGate, into.Matrices)
}

// NewBF16Gradients starts a stream whose gradients each Flush writes over into, laid out as the weights, in BF16 by one cast
// (R11); nil for new memory. What was in into does not matter, and a Flush ends the sum: the next one is of what comes after
// it. It needs no FP32 accumulators but for experts of many rows.
func (l *Layer) NewBF16Gradients(into *contract.Weights) (*Gradients, error) {
	if into == nil {
		into = l.part.NewWeights()
	}
	if err := into.CheckPart(l.part); err != nil {
		return nil, err
	}
	return newGradients(&Gradients{layer: l, bf16: into}, into.Router, into.SharedGate, into.Matrices)
}

// newGradients starts g's fold into the caller's memory; expert E is the shared one.
func newGradients[T float32 | BF16](g *Gradients, router, sharedGate []T, expert func(e int) contract.Matrices[T]) (*Gradients, error) {
	l, dtype := g.layer, backend.FP32
	if l.unusable != nil {
		return nil, l.unusable
	}
	if g.bf16 != nil {
		dtype = backend.BF16
	}
	m := &arena{machine: l.machine}
	g.memory = m
	wrap := func(v []T) (b backend.Buffer) {
		m.run(func() (err error) {
			b, err = m.machine.Wrap(dtype, host.Bytes(v))
			if errors.Is(err, backend.ErrElsewhere) {
				b, err = m.alloc(dtype, len(v)), m.err
				g.doubles = append(g.doubles, double{host.Bytes(v), b})
			}
			return err
		})
		return b
	}
	wrapExpert := func(e int) backend.ExpertGradient {
		x := expert(e)
		return backend.ExpertGradient{Gate: wrap(*x.Gate), Up: wrap(*x.Up), Down: wrap(*x.Down)}
	}
	buffers := &backend.Gradients{Router: wrap(router)}
	for e := range l.shape.Experts {
		buffers.Experts = append(buffers.Experts, wrapExpert(e))
	}
	if l.shape.SharedWidth > 0 {
		shared := wrapExpert(l.shape.Experts)
		buffers.Shared, buffers.SharedGate = &shared, wrap(sharedGate)
	}
	m.run(func() (err error) {
		g.fold, err = l.stages.NewFold(buffers)
		return err
	})
	if m.err != nil {
		return nil, m.close()
	}
	return g, nil
}

// begin reads the accumulators that a stream is added to.
func (g *Gradients) begin() error {
	if g.fp32 != nil && !g.begun {
		for _, d := range g.doubles {
			if err := g.layer.machine.Write(d.own, d.host); err != nil {
				return err
			}
		}
	}
	g.begun = true
	return nil
}

// Flush folds in the rows that wait for their segment to fill, which ends the stream; a Backward after it starts another.
// Only then are the gradients complete.
func (g *Gradients) Flush() error {
	if err := g.usable(); err != nil {
		return err
	}
	if err := g.fold.Flush(); err != nil {
		return err
	}
	if g.begun || g.bf16 != nil {
		for _, d := range g.doubles {
			if err := g.layer.machine.Read(d.host, d.own); err != nil {
				return err
			}
		}
	}
	g.begun = false
	return nil
}

// usable is why nothing more can be added.
func (g *Gradients) usable() error {
	if g.layer.unusable != nil {
		return g.layer.unusable
	}
	if g.closed {
		return errGradientsClosed
	}
	return nil
}

// FP32 is the accumulators of NewGradients, complete after Flush; nil for NewBF16Gradients.
func (g *Gradients) FP32() *contract.Gradients { return g.fp32 }

// BF16 is the gradients of NewBF16Gradients, complete after Flush; nil for NewGradients.
func (g *Gradients) BF16() *contract.Weights { return g.bf16 }

// Close gives back what the stream holds, which no Backward or Flush can use after it; the gradients stay. It may be
// called twice.
func (g *Gradients) Close() error {
	if g.closed {
		return nil
	}
	g.closed = true
	err := g.fold.Close()
	if g.layer.unusable != errClosed { // else the backend has taken it back
		g.memory.close()
	}
	return err
}
