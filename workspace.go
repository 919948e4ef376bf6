// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit

import (
	"errors"
	"fmt"

	"github.com/samebit/samebit/backend"
)

// Workspace runs a layer on tensors that lie on a GPU, in a stream of the caller's, as an engine in the same process does.
// Its memory is reserved once. A Forward then copies nothing to or from the host, allocates nothing and does not wait, so that
// the caller can capture it in a CUDA graph. Calls must come one at a time, and their streams must keep that order; several
// workspaces of one layer are independent of each other.
type Workspace struct {
	layer  *Layer
	device backend.Device
	queue  backend.Queue
	arena  *arena
	work   work
	tokens int
	closed bool

	back *backwardWork // of a training workspace
	tape *work         // what the last forward left for its backward; nil where there was none, or it was refused
}

var errWorkspaceClosed = errors.New("the workspace is closed")

// Tensors are addresses on the GPU: of x and y at multiples of 16 bytes, of the others at multiples of 4.
type Tensors struct {
	X uintptr // [T,H] BF16
	Y uintptr // [T,H] BF16, written

	// Written too, where they are not 0.
	Logits  uintptr // [T,E] FP32
	IDs     uintptr // [T,K] I32, -1 for a token that did no work
	Weights uintptr // [T,K] FP32
	Status  uintptr // [T] I32, a contract.Status: which tokens were rejected (R13)

	// Count, where it is not 0, is [1] I32: the number of tokens, read as the work runs, in place of the call's own, which
	// it must not exceed. A graph so captured serves any number up to that.
	Count uintptr
}

// NewWorkspace reserves memory for forwards of up to so many tokens at a time; a Forward of more runs in parts, with the
// same bits. A backend whose memory is the host's has no use for it, and refuses with errors.ErrUnsupported.
func (l *Layer) NewWorkspace(tokens int) (*Workspace, error) { return l.newWorkspace(tokens, false) }

// NewTrainingWorkspace is NewWorkspace with what a Backward needs, too: the last forward's g and u in FP32, and the rows'
// gradients. Its forwards take no more tokens than it was made for.
func (l *Layer) NewTrainingWorkspace(tokens int) (*Workspace, error) {
	return l.newWorkspace(tokens, true)
}

func (l *Layer) newWorkspace(tokens int, train bool) (*Workspace, error) {
	if l.unusable != nil {
		return nil, l.unusable
	}
	if tokens < 1 {
		return nil, fmt.Errorf("workspace: found %d tokens: need at least 1", tokens)
	}
	device, is := l.stages.(backend.Device)
	if !is {
		return nil, fmt.Errorf("workspace: backend %s works in the host's memory: need one on a GPU: %w", l.machine.Name(), errors.ErrUnsupported)
	}
	queue, err := device.Queue()
	if err != nil {
		return nil, err
	}
	w := &Workspace{layer: l, device: device, queue: queue, arena: &arena{machine: queue}, tokens: tokens}
	w.work = l.newWork(w.arena, tokens, train)
	if train {
		back := l.newBackwardWork(w.arena, w.work)
		w.back = &back
	}
	if err := w.warmUp(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// warmUp runs the stages once, on no tokens, so that whatever they allocate is there.
func (w *Workspace) warmUp() error {
	m := &arena{machine: w.queue}
	none := m.alloc(backend.I32, 1)
	m.run(func() error { return w.queue.Zero(none) })
	size := w.tokens * w.layer.shape.Hidden
	work := w.work
	work.between(m.alloc(backend.BF16, size), m.alloc(backend.BF16, size))
	w.queue.Count(none)
	work.forward(m, w.queue)
	if w.back != nil {
		back := *w.back
		back.between(work.route.X, work.combine.Y)
		back.after(&work)
		back.backward(m, w.queue, nil)
	}
	w.queue.Count(nil)
	get(m, make([]int32, 1), none)
	return m.close()
}

// Queue is the workspace's queue of work, whose memory, graphs and times serve callers that have none of their own.
func (w *Workspace) Queue() backend.Queue { return w.queue }

// Held is how many bytes of the GPU's memory the layer has, and how many the workspace.
func (w *Workspace) Held() (layer, workspace int64) { return w.device.Held(), w.queue.Held() }

// Forward asks for the forward of so many tokens in stream, a CUstream, and returns at once. Its bits are Layer.Forward's.
// A token with a logit that is not finite gets a y of NaN and ids of -1 (R13): Tensors.Status tells, as the call cannot.
func (w *Workspace) Forward(stream uintptr, t Tensors, tokens int) error {
	if !w.closed {
		w.queue.Use(stream)
	}
	return w.Enqueue(t, tokens)
}

// Enqueue is Forward in the stream of the call before, and at first in one of the workspace's own.
func (w *Workspace) Enqueue(t Tensors, tokens int) error {
	w.tape = nil // a refused forward must not leave the backward of the one before it
	if err := w.usable(); err != nil {
		return err
	}
	if err := w.check(t, tokens); err != nil {
		return err
	}
	count := backend.Buffer(nil)
	if t.Count != 0 {
		count = w.queue.At(backend.I32, t.Count, 1)
	}
	w.queue.Count(count)
	last := w.work
	last.of(0) // what no tokens leave for their backward
	for from := 0; from < tokens; from += w.tokens {
		var err error
		if last, err = w.part(t, from, min(w.tokens, tokens-from)); err != nil {
			return err
		}
	}
	w.tape = &last
	return nil
}

// usable is why there is no use of the workspace any more, or none until the layer takes other weights.
func (w *Workspace) usable() error {
	if w.closed {
		return errWorkspaceClosed
	}
	return w.layer.unusable
}

func (w *Workspace) check(t Tensors, tokens int) error {
	switch {
	case tokens < 0:
		return fmt.Errorf("workspace: found %d tokens: need at least 0", tokens)
	case tokens > w.tokens && (t.Count != 0 || w.back != nil):
		return fmt.Errorf("workspace: found %d tokens to train on, or counted on the GPU: need at most the workspace's %d", tokens, w.tokens)
	case tokens > 0 && (t.X == 0 || t.Y == 0):
		return errors.New("workspace: found no address of x or of y: need both")
	}
	for _, a := range []uintptr{t.X, t.Y} {
		if a%16 != 0 {
			return fmt.Errorf("workspace: x or y at %#x: need a multiple of 16", a)
		}
	}
	for _, a := range []uintptr{t.Logits, t.IDs, t.Weights, t.Status, t.Count} {
		if a%4 != 0 {
			return fmt.Errorf("workspace: a tensor at %#x: need a multiple of 4", a)
		}
	}
	return nil
}

// part runs n tokens from one on, and gives the buffers that it did so in.
func (w *Workspace) part(t Tensors, from, n int) (work, error) {
	s, work := w.layer.shape, w.work
	at := func(d backend.Dtype, address uintptr, width int) backend.Buffer {
		return w.queue.At(d, address+uintptr(from*width*d.Size()), n*width)
	}
	work.of(n)
	work.between(at(backend.BF16, t.X, s.Hidden), at(backend.BF16, t.Y, s.Hidden))
	if t.Logits != 0 {
		work.route.Logits = at(backend.FP32, t.Logits, s.Experts)
	}
	if t.IDs != 0 {
		work.route.IDs = at(backend.I32, t.IDs, s.TopK)
		work.plan.IDs = work.route.IDs
	}
	if t.Weights != 0 {
		work.route.Weights = at(backend.FP32, t.Weights, s.TopK)
		work.combine.Weights = work.route.Weights
	}
	if t.Status != 0 {
		work.route.Status = at(backend.I32, t.Status, 1)
		work.combine.Status = work.route.Status
	}
	m := &arena{machine: w.queue}
	work.forward(m, w.queue)
	return work, m.err
}

// Close waits for the work and gives the workspace's memory back, that of its gradients' streams, too; every later call is an
// error. It may be called twice. It comes before the layer's Close, which takes the GPU away under it.
func (w *Workspace) Close() error {
	if w.closed {
		return nil
	}
	w.closed, w.tape = true, nil
	if w.layer.unusable == errClosed {
		return fmt.Errorf("workspace: %w: need its workspaces closed before it", errClosed)
	}
	return w.queue.Close()
}
