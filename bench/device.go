// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"time"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// mostInGraph is how many runs of different tokens stand in one graph at the most, and together they have at most graphTokens, or
// are one: so that an expert's weights do not wait in the GPU's cache from one run of it to the next.
const (
	mostInGraph = 16
	graphTokens = 1024
)

// onDevice is a pass over tokens that lie on a GPU, captured in a graph.
type onDevice struct {
	shape     contract.Shape
	workspace *samebit.Workspace
	queue     backend.Queue
	grads     *samebit.WorkspaceGradients // nil for a forward
	held      int64                       // bytes of the gradients
	graph     backend.Graph
	runs      int
	experts   float64 // with a token, of one run on average
	err       error   // of what allocates
}

// newOnDevice captures a pass over tokens x, so many a run, with the upstream gradients dy.
func newOnDevice(l *samebit.Layer, p Pass, x, dy []samebit.BF16, tokens int) (*onDevice, error) {
	open := l.NewTrainingWorkspace
	if p == Forward {
		open = l.NewWorkspace
	}
	w, err := open(tokens)
	if err != nil {
		return nil, err
	}
	runs := max(1, min(mostInGraph, graphTokens/tokens, len(x)/(tokens*l.Shape().Hidden)))
	d := &onDevice{shape: l.Shape(), workspace: w, queue: w.Queue(), runs: runs}
	if p != Forward {
		err = d.newGradients(p)
	}
	if err == nil {
		err = d.capture(x, dy, tokens)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// alloc makes a buffer; the first error stays in err.
func (d *onDevice) alloc(dtype backend.Dtype, n int) backend.Buffer {
	b, err := d.queue.Alloc(dtype, n)
	d.err = errors.Join(d.err, err)
	return b
}

// put makes a buffer with v in it.
func (d *onDevice) put(v []samebit.BF16) backend.Buffer {
	b := d.alloc(backend.BF16, len(v))
	if d.err == nil {
		d.err = d.queue.Write(b, host.Bytes(v))
	}
	return b
}

// at is where part i of n equal ones of a buffer lies.
func (d *onDevice) at(b backend.Buffer, i, n int) uintptr {
	size := b.Len() / n
	return d.queue.Address(b.Slice(i*size, (i+1)*size))
}

// newGradients makes those of a pass, at +0.
func (d *onDevice) newGradients(p Pass) error {
	s, t := d.shape, samebit.GradientTensors{Dtype: backend.FP32}
	if p == ForwardBackward {
		t.Dtype = backend.BF16
	}
	matrix := func(n int) uintptr {
		b := d.alloc(t.Dtype, n)
		if d.err != nil {
			return 0
		}
		d.err = d.queue.Zero(b)
		d.held += int64(n * t.Dtype.Size())
		return d.queue.Address(b)
	}
	expert := func(width int) samebit.ExpertTensors {
		return samebit.ExpertTensors{Gate: matrix(s.Hidden * width), Up: matrix(s.Hidden * width), Down: matrix(s.Hidden * width)}
	}
	t.Router = matrix(s.Experts * s.Hidden)
	for range s.Experts {
		t.Experts = append(t.Experts, expert(s.Width))
	}
	if s.SharedWidth > 0 {
		t.Shared, t.SharedGate = expert(s.SharedWidth), matrix(s.Hidden)
	}
	if d.err == nil {
		d.grads, d.err = d.workspace.NewGradients(t)
	}
	return d.err
}

func (d *onDevice) capture(x, dy []samebit.BF16, tokens int) error {
	n := d.runs * tokens
	in, up := d.put(x[:n*d.shape.Hidden]), d.put(dy[:n*d.shape.Hidden])
	out, dx := d.alloc(backend.BF16, in.Len()), d.alloc(backend.BF16, in.Len())
	ids := d.alloc(backend.I32, n*d.shape.TopK)
	if d.err != nil {
		return d.err
	}
	all := func() error {
		for i := range d.runs {
			t := samebit.Tensors{X: d.at(in, i, d.runs), Y: d.at(out, i, d.runs), IDs: d.at(ids, i, d.runs)}
			if err := d.workspace.Enqueue(t, tokens); err != nil {
				return err
			}
			if d.grads == nil {
				continue
			}
			if err := d.workspace.EnqueueBackward(d.at(up, i, d.runs), d.at(dx, i, d.runs), d.grads); err != nil {
				return err
			}
			if err := d.grads.Flush(); err != nil {
				return err
			}
		}
		return nil
	}
	if err := all(); err != nil { // allocates what it needs
		return err
	}
	went := make([]int32, ids.Len())
	if err := d.queue.Read(host.Bytes(went), ids); err != nil {
		return err
	}
	for i := range d.runs {
		seen := map[int32]bool{}
		for _, e := range went[i*tokens*d.shape.TopK : (i+1)*tokens*d.shape.TopK] {
			seen[e] = true
		}
		d.experts += float64(len(seen)) / float64(d.runs)
	}
	d.graph, d.err = d.queue.Capture(all)
	return d.err
}

// run is one run's part of a replay.
func (d *onDevice) run() (Run, error) {
	spent, err := d.queue.Time(d.graph.Replay)
	return Run{spent / time.Duration(d.runs), spent, d.experts}, err
}

// memory is the GPU's.
func (d *onDevice) memory() Memory {
	layer, all := d.workspace.Held()
	return Memory{Peak: layer + all, Loaded: layer, Gradients: d.held, Workspace: all - d.held}
}

func (d *onDevice) close() error {
	var err error
	if d.graph != nil {
		err = d.graph.Close()
	}
	if d.grads != nil {
		err = errors.Join(err, d.grads.Close())
	}
	return errors.Join(err, d.workspace.Close())
}
