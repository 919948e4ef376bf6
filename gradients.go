// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// Gradients are the gradients of a layer's weights: a fold over the token stream of all the Backward calls that add to it,
// so that they have the same bits however the stream is cut into micro-batches (R11). Calls must come one at a time, in
// the stream's order.
type Gradients struct {
	layer *Layer
	fp32  *contract.Gradients
	bf16  *contract.Weights
	fold  backend.Fold
}

// NewGradients starts a stream that is added, in place, to the FP32 accumulators into (a trainer's main_grad), laid out as
// the weights; nil for new ones of +0.
func (l *Layer) NewGradients(into *contract.Gradients) (*Gradients, error) {
	if into == nil {
		into = l.part.GradientsIn(host.Floats(l.part.Size()))
	}
	if err := into.CheckPart(l.part); err != nil {
		return nil, err
	}
	return newGradients(&Gradients{layer: l, fp32: into}, into.Router, into.SharedGate, func(e int) (gate, up, down []float32) {
		x := into.Shared
		if e < len(into.Experts) {
			x = &into.Experts[e]
		}
		return x.Gate, x.Up, x.Down
	})
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
	return newGradients(&Gradients{layer: l, bf16: into}, into.Router, into.SharedGate, func(e int) (gate, up, down []BF16) {
		x := into.Shared
		if e < len(into.Experts) {
			x = &into.Experts[e]
		}
		return x.Gate, x.Up, x.Down
	})
}

// newGradients starts g's fold into the caller's memory; expert E is the shared one.
func newGradients[T float32 | BF16](g *Gradients, router, sharedGate []T, expert func(e int) (gate, up, down []T)) (*Gradients, error) {
	l, dtype := g.layer, backend.FP32
	if l.unusable != nil {
		return nil, l.unusable
	}
	if g.bf16 != nil {
		dtype = backend.BF16
	}
	m := &arena{machine: l.machine}
	wrap := func(v []T) (b backend.Buffer) {
		m.run(func() (err error) {
			b, err = m.machine.Wrap(dtype, host.Bytes(v))
			return err
		})
		return b
	}
	buffers := &backend.Gradients{Router: wrap(router)}
	for e := range l.shape.Experts {
		gate, up, down := expert(e)
		buffers.Experts = append(buffers.Experts, backend.ExpertGradient{Gate: wrap(gate), Up: wrap(up), Down: wrap(down)})
	}
	if l.shape.SharedWidth > 0 {
		gate, up, down := expert(l.shape.Experts)
		buffers.Shared = &backend.ExpertGradient{Gate: wrap(gate), Up: wrap(up), Down: wrap(down)}
		buffers.SharedGate = wrap(sharedGate)
	}
	m.run(func() (err error) {
		g.fold, err = l.stages.NewFold(buffers)
		return err
	})
	if m.err != nil {
		return nil, m.err
	}
	return g, nil
}

// Flush folds in the rows that wait for their segment to fill, which ends the stream; a Backward after it starts another.
// Only then are the gradients complete.
func (g *Gradients) Flush() error {
	if g.layer.unusable != nil {
		return g.layer.unusable
	}
	return g.fold.Flush()
}

// FP32 is the accumulators of NewGradients, complete after Flush; nil for NewBF16Gradients.
func (g *Gradients) FP32() *contract.Gradients { return g.fp32 }

// BF16 is the gradients of NewBF16Gradients, complete after Flush; nil for NewGradients.
func (g *Gradients) BF16() *contract.Weights { return g.bf16 }

// Close gives back what the stream holds; the gradients stay.
func (g *Gradients) Close() error { return g.fold.Close() }
