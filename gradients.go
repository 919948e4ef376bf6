// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit

import (
	"fmt"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// Gradients are the gradients of a layer's weights: a fold over the token stream of all the Backward calls that add to it,
// so that they have the same bits however the stream is cut into micro-batches (R11). Calls must come one at a time, in
// the stream's order.
type Gradients struct {
	layer *Layer
	into  *contract.Gradients
	fold  backend.Fold
}

// NewGradients starts a stream that is added, in place, to the FP32 accumulators into (a trainer's main_grad), laid out as
// the weights; nil for new ones of +0.
func (l *Layer) NewGradients(into *contract.Gradients) (*Gradients, error) {
	if into == nil {
		into = l.shape.GradientsIn(host.Floats(l.shape.GradientSize()))
	}
	if err := into.Check(l.shape); err != nil {
		return nil, err
	}
	m := &arena{machine: l.machine}
	wrap := func(v []float32) (b backend.Buffer) {
		m.run(func() (err error) {
			b, err = m.machine.Wrap(backend.FP32, bytesOf(v))
			return err
		})
		return b
	}
	expert := func(e *contract.ExpertGradient) backend.ExpertGradient {
		return backend.ExpertGradient{Gate: wrap(e.Gate), Up: wrap(e.Up), Down: wrap(e.Down)}
	}
	buffers := &backend.Gradients{Router: wrap(into.Router)}
	for e := range into.Experts {
		buffers.Experts = append(buffers.Experts, expert(&into.Experts[e]))
	}
	if into.Shared != nil {
		shared := expert(into.Shared)
		buffers.Shared, buffers.SharedGate = &shared, wrap(into.SharedGate)
	}
	g := &Gradients{layer: l, into: into}
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
// Only then are the accumulators complete.
func (g *Gradients) Flush() error { return g.fold.Flush() }

// Tensors are the accumulators; complete after Flush.
func (g *Gradients) Tensors() *contract.Gradients { return g.into }

// Close gives back what the stream holds; the accumulators stay.
func (g *Gradients) Close() error { return g.fold.Close() }

// Round casts FP32 to BF16, element by element, each to nearest even: a gradient's one cast (R11).
func Round(dst []BF16, src []float32) error {
	if len(dst) != len(src) {
		return fmt.Errorf("round: %d elements to %d: need as many", len(src), len(dst))
	}
	for i, v := range src {
		dst[i] = contract.Round(v)
	}
	return nil
}
