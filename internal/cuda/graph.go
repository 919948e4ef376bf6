// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"time"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/internal/cuda/driver"
)

// graph implements backend.Graph.
type graph struct {
	b    *Backend
	exec driver.Exec
}

// Capture makes a graph of the stages that do asks for, without running them. They must have run once before, so that
// nothing has to be allocated on the way; their buffers must live as long as the graph.
func (b *Backend) Capture(do func() error) (backend.Graph, error) {
	b.forget() // a graph's first kernel comes after any, and the next one outside of it too
	exec, err := b.gpu.Capture(b.stream, do)
	b.forget()
	if err != nil {
		return nil, err
	}
	return &graph{b, exec}, nil
}

// Replay runs the graph after all work asked for before; it does not wait.
func (g *graph) Replay() error {
	g.b.forget()
	return g.b.gpu.Replay(g.exec, g.b.stream)
}

// Close gives the graph back.
func (g *graph) Close() error { return g.b.gpu.FreeExec(g.exec) }

// Time is how long the GPU takes for what do asks for.
func (b *Backend) Time(do func() error) (time.Duration, error) {
	var events [2]driver.Event
	for i := range events {
		e, err := b.gpu.NewEvent()
		if err != nil {
			return 0, err
		}
		defer b.gpu.FreeEvent(e)
		events[i] = e
	}
	if err := errors.Join(b.gpu.Record(events[0], b.stream), do(), b.gpu.Record(events[1], b.stream)); err != nil {
		return 0, err
	}
	ms, err := b.gpu.Elapsed(events[0], events[1])
	return time.Duration(ms * float64(time.Millisecond)), err
}
