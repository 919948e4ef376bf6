// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit

import (
	"errors"
	"fmt"

	"github.com/samebit/samebit/backend"
)

// WorkspaceGradients are gradients of the layer's weights in the caller's memory on the GPU: a fold over the token stream of the
// workspace's backwards (R11). What a backward leaves for Flush waits in the workspace, up to 2 GiB of it, and is folded in in one
// pass; only a longer stream of BF16 gradients needs FP32 sums beside them. A CUDA graph has all of a stream, up to Flush, or
// none of it.
type WorkspaceGradients struct {
	workspace *Workspace
	fold      backend.Fold
	closed    bool
}

// GradientTensors are addresses on the GPU, each of a matrix of a weight's own shape: FP32, added to in place (Megatron's main_grad);
// or BF16, written over by Flush in one cast.
type GradientTensors struct {
	Dtype      backend.Dtype // FP32 or BF16
	Router     uintptr       // [E,H]
	SharedGate uintptr       // [H]; 0 where there is no shared expert
	Experts    []ExpertTensors
	Shared     ExpertTensors
}

// ExpertTensors are one expert's part.
type ExpertTensors struct {
	Gate, Up uintptr // [I,H]
	Down     uintptr // [H,I]
}

// NewGradients starts a stream into the caller's memory.
func (w *Workspace) NewGradients(t GradientTensors) (*WorkspaceGradients, error) {
	if err := w.usable(); err != nil {
		return nil, err
	}
	s := w.layer.shape
	switch {
	case t.Dtype != backend.FP32 && t.Dtype != backend.BF16:
		return nil, fmt.Errorf("gradients of type %v: need FP32 or BF16", t.Dtype)
	case len(t.Experts) != s.Experts:
		return nil, fmt.Errorf("gradients of %d experts: need %d", len(t.Experts), s.Experts)
	}
	var err error
	at := func(what string, address uintptr, n int) backend.Buffer {
		if err == nil && (address == 0 || address%16 != 0) {
			err = fmt.Errorf("gradients: %s at %#x: need an address at a multiple of 16", what, address)
		}
		if err != nil {
			return nil
		}
		return w.queue.At(t.Dtype, address, n)
	}
	expert := func(what string, x ExpertTensors, width int) backend.ExpertGradient {
		n := s.Hidden * width
		return backend.ExpertGradient{Gate: at(what+" gate", x.Gate, n), Up: at(what+" up", x.Up, n), Down: at(what+" down", x.Down, n)}
	}
	g := &backend.Gradients{Router: at("router", t.Router, s.Experts*s.Hidden)}
	for e, x := range t.Experts {
		g.Experts = append(g.Experts, expert(fmt.Sprintf("expert %d", e), x, s.Width))
	}
	if s.SharedWidth > 0 {
		shared := expert("shared expert", t.Shared, s.SharedWidth)
		g.Shared, g.SharedGate = &shared, at("shared gate", t.SharedGate, s.Hidden)
	}
	if err != nil {
		return nil, err
	}
	fold, err := w.queue.NewFold(g)
	if err != nil {
		return nil, err
	}
	return &WorkspaceGradients{workspace: w, fold: fold}, nil
}

// Flush folds in, in the stream of the call before, the rows that wait for their segment to fill. Only then are the gradients
// complete.
func (g *WorkspaceGradients) Flush() error {
	if err := g.usable(); err != nil {
		return err
	}
	return g.fold.Flush()
}

// usable is why nothing more can be added.
func (g *WorkspaceGradients) usable() error {
	if err := g.workspace.usable(); err != nil {
		return err
	}
	if g.closed {
		return errGradientsClosed
	}
	return nil
}

// Close gives back what the stream holds; the gradients stay. It may be called twice.
func (g *WorkspaceGradients) Close() error {
	if g.closed || g.workspace.closed || g.workspace.layer.unusable == errClosed { // else the memory has been taken back
		return nil
	}
	g.closed = true
	return g.fold.Close()
}

// Backward asks for the backward of the last forward in stream, a CUstream, and returns at once: from dy to dx, both [T,H] BF16 at
// addresses on the GPU that are multiples of 16, and into g, which may be nil. The x of the forward must still be there. After a
// forward of no tokens there is nothing to do, and dy and dx may be 0; after one that was refused, or failed, it is an error.
func (w *Workspace) Backward(stream uintptr, dy, dx uintptr, g *WorkspaceGradients) error {
	if !w.closed {
		w.queue.Use(stream)
	}
	return w.EnqueueBackward(dy, dx, g)
}

// EnqueueBackward is Backward in the stream of the call before.
func (w *Workspace) EnqueueBackward(dy, dx uintptr, g *WorkspaceGradients) error {
	if err := w.usable(); err != nil {
		return err
	}
	switch {
	case w.back == nil:
		return errors.New("workspace: a backward: need a workspace of NewTrainingWorkspace")
	case w.tape == nil:
		return errors.New("workspace: a backward without a forward before it: need one")
	case g != nil && g.workspace != w:
		return errors.New("workspace: gradients of another workspace: need its own")
	case g != nil && g.closed:
		return errGradientsClosed
	}
	forward, back := w.tape, *w.back
	tokens := forward.route.Tokens
	switch {
	case tokens > 0 && (dy == 0 || dx == 0) || dy%16 != 0 || dx%16 != 0:
		return fmt.Errorf("workspace: dy at %#x, dx at %#x: need addresses at multiples of 16", dy, dx)
	case tokens == 0:
		return nil
	}
	size := tokens * w.layer.shape.Hidden
	back.between(w.queue.At(backend.BF16, dy, size), w.queue.At(backend.BF16, dx, size))
	back.after(forward)
	var fold backend.Fold
	if g != nil {
		fold = g.fold
	}
	m := &arena{machine: w.queue}
	back.backward(m, w.queue, fold)
	return m.err
}
