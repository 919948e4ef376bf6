// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
)

// Layer is a loaded layer. It is safe for concurrent use, but for Refresh and Close.
type Layer struct {
	unusable error // set by a refused Refresh, and by Close
	shape    contract.Shape
	part     contract.Part // of the weights, that is held here
	options  Options
	machine  backend.Backend
	stages   backend.Layer
	ranks    backend.Ranks // stages, where they are spread over ranks; else nil
	loaded   *loading
	tapes    atomic.Int64           // how many there have been
	source   *checkpoint.Checkpoint // nil for a layer made by New
	tensors  []checkpoint.Entry
}

// Open loads layer number n of the Hugging Face folder dir. The weights are copied: what becomes of the files does not matter.
func Open(dir string, n int, o Options) (*Layer, error) {
	source, err := checkpoint.Open(dir)
	if err != nil {
		return nil, err
	}
	l, err := Load(source, n, o)
	if err != nil {
		source.Close()
		return nil, err
	}
	l.source = source
	return l, nil
}

// Load loads layer number n of an open checkpoint, which may be closed afterwards unless the layer is to be refreshed.
func Load(c *checkpoint.Checkpoint, n int, o Options) (*Layer, error) {
	part := contract.Shape.Whole
	if o.Ranks != nil {
		part = o.Ranks.Part
	}
	from, err := c.LayerPart(n, part)
	if err != nil {
		return nil, err
	}
	var l *Layer
	err = safetensors.Guard(func() (err error) {
		l, err = load(from.Shape, &from.Weights, o, c.Evict)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil { // else zeros behind a new end might have been copied
		l.Close()
		return nil, err
	}
	l.tensors = from.Tensors
	return l, nil
}

// New makes a layer of weights in memory. They are copied; a change to them counts from the next Refresh on.
func New(s contract.Shape, w *contract.Weights, o Options) (*Layer, error) { return load(s, w, o, nil) }

// loading is how far the weights have been copied.
type loading struct {
	mu          sync.Mutex
	done, total int64
	progress    func(done, total int64)
	copied      func([]BF16)
}

// part notes weights that have been copied.
func (p *loading) part(w []BF16) {
	if p.copied != nil {
		p.copied(w)
	}
	if p.progress != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.done += 2 * int64(len(w))
		p.progress(p.done, p.total)
	}
}

// load makes a layer; copied is told of weights that need not stay in memory.
func load(s contract.Shape, w *contract.Weights, o Options, copied func([]BF16)) (*Layer, error) {
	if w == nil {
		return nil, errors.New("weights: found nil: need those of the shape")
	}
	if o.NormTopK != nil {
		s.NormTopK = *o.NormTopK
	}
	if o.RouterLogits != FP32 && o.RouterLogits != BF16Logits {
		return nil, fmt.Errorf("options: RouterLogits %d: need FP32 (%d) or BF16Logits (%d)", o.RouterLogits, FP32, BF16Logits)
	}
	if o.MaxTokens < 0 {
		return nil, fmt.Errorf("options: MaxTokens %d: need at least 1, or 0 for %d", o.MaxTokens, defaultMaxTokens)
	}
	if o.MaxTokens == 0 {
		o.MaxTokens = defaultMaxTokens
	}
	if s.Width < 1 {
		return nil, fmt.Errorf("shape: width %d: need at least 1", s.Width)
	}
	machine, err := o.open()
	if err != nil {
		return nil, err
	}
	part := s.Whole()
	if o.Ranks != nil {
		part = o.Ranks.Part(s)
	}
	loaded := &loading{total: 2 * int64(part.Size()), progress: o.Progress, copied: copied}
	stages, err := machine.Load(backend.Spec{Shape: s, Weights: w, BF16Logits: o.RouterLogits == BF16Logits, Copied: loaded.part})
	if err != nil {
		machine.Close()
		return nil, err
	}
	l := &Layer{shape: s, part: part, options: o, machine: machine, stages: stages, loaded: loaded}
	l.ranks, _ = stages.(backend.Ranks)
	return l, nil
}

// Shape is the layer's shape.
func (l *Layer) Shape() contract.Shape { return l.shape }

// Part is the part of the weights that this process holds, and has the gradients of: all of them, but on ranks.
func (l *Layer) Part() contract.Part { return l.part }

// Tensors are the checkpoint's own names of the layer's tensors; none for a layer made by New.
func (l *Layer) Tensors() []checkpoint.Entry { return l.tensors }

// Device says for people what runs the work.
func (l *Layer) Device() string { return l.machine.Device() }

// Refresh takes note that the weights have changed in place, as after an optimizer's step. Weights that are not finite are
// refused (R13), and with them every call until a Refresh takes others; a tape from before belongs to the old weights. No
// other call may run meanwhile.
func (l *Layer) Refresh() error {
	if l.unusable == errClosed {
		return errClosed
	}
	l.unusable, l.loaded.done = nil, 0
	if err := l.stages.Refresh(); err != nil {
		l.unusable = fmt.Errorf("the layer's weights were refused: %w", err)
	}
	return l.unusable
}

var errClosed = errors.New("the layer is closed")

// Close gives back what the layer holds. No other call may run meanwhile; every later one is an error.
func (l *Layer) Close() error {
	if l.unusable == errClosed {
		return nil
	}
	l.unusable = errClosed
	err := l.stages.Close()
	if e := l.machine.Close(); err == nil {
		err = e
	}
	if l.source != nil {
		if e := l.source.Close(); err == nil {
			err = e
		}
	}
	return err
}

// Output is what a Forward gives.
type Output struct {
	Y []BF16 // [T,H]
	Routes
	Tape *Tape // with Train
}

// forward is one call of Forward.
type forward struct {
	train  bool
	replay []int32

	replaying bool // also with no ids for no tokens
}

// Forward runs tokens x [T,H] through the layer. It is one path, with or without a tape. Tokens with a logit that is not
// finite give both an output and a *RejectedError, unless Options.AllowReject.
func (l *Layer) Forward(x []BF16, options ...ForwardOption) (*Output, error) {
	var f forward
	for _, o := range options {
		o(&f)
	}
	tokens, err := checkTokens("x", x, l.shape)
	switch {
	case l.unusable != nil:
		err = l.unusable
	case err == nil && f.replaying:
		err = checkReplay(f.replay, tokens, l.shape)
	}
	cuts, err := l.begin(backend.Call{Name: "forward", Tokens: tokens, Data: x, Train: f.train, Replay: f.replaying,
		IDs: f.replay, Err: err})
	if err != nil {
		return nil, err
	}
	out := l.newOutput(tokens)
	if f.train {
		out.Tape = &Tape{layer: l, tokens: tokens, number: l.tapes.Add(1)}
	}
	for _, c := range cuts {
		if err := l.forwardChunk(x, f, out, c.From, c.To); err != nil {
			out.Tape.Free()
			return nil, l.failed(err)
		}
	}
	if out.Rejected.Tokens > 0 && !l.options.AllowReject {
		return out, &out.Rejected
	}
	return out, nil
}

// forwardChunk runs the tokens from one to another.
func (l *Layer) forwardChunk(x []BF16, f forward, out *Output, from, to int) error {
	m := &arena{machine: l.machine}
	w := l.newWork(m, to-from, f.train && !l.options.Recompute)
	size := (to - from) * l.shape.Hidden
	w.between(m.alloc(backend.BF16, size), m.alloc(backend.BF16, size))
	put(m, w.route.X, rowsOf(x, from, to, l.shape.Hidden))
	if f.replaying {
		w.route.Replay = m.alloc(backend.I32, (to-from)*l.shape.TopK)
		put(m, w.route.Replay, rowsOf(f.replay, from, to, l.shape.TopK))
	}
	w.forward(m, l.stages)
	get(m, rowsOf(out.Y, from, to, l.shape.Hidden), w.combine.Y)
	out.Routes.read(m, w.route, from, to, l.shape)
	if m.err == nil && f.train {
		out.Tape.chunks = append(out.Tape.chunks, chunk{from, to, w, m})
		m.free(w.down.Out, w.combine.Y) // the backward has no use for them
		if l.options.Recompute {
			m.free(w.gateUp.Routed.H)
			if w.gateUp.Shared.H != nil {
				m.free(w.gateUp.Shared.H)
			}
		}
		return nil
	}
	return m.close()
}

// begin gives the chunks that a call's tokens are worked on in, or the call's error. Ranks agree on both.
func (l *Layer) begin(c backend.Call) (cuts []contract.Range, err error) {
	c.MaxTokens, c.Recompute = l.options.MaxTokens, l.options.Recompute
	if l.ranks != nil && l.unusable != errClosed {
		return l.ranks.Begin(c)
	}
	for from := 0; from < c.Tokens; from += c.MaxTokens {
		cuts = append(cuts, contract.Range{From: from, To: min(from+c.MaxTokens, c.Tokens)})
	}
	return cuts, c.Err
}

// failed tells other ranks of a call that failed in the middle, where they would wait.
func (l *Layer) failed(err error) error {
	if l.ranks != nil {
		l.ranks.Abort(err)
	}
	return err
}

// rowsOf is the rows from one to another of a matrix of n columns.
func rowsOf[T any](m []T, from, to, n int) []T { return m[from*n : to*n] }
