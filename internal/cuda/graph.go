// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
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
// nothing has to be allocated on the way; their buffers must live as long as the graph. A stream of gradients lies in one graph
// from its first Add to its Flush, or outside of it: what an Add leaves for Flush is known to the host alone.
func (b *Backend) Capture(do func() error) (backend.Graph, error) {
	if err := b.betweenStreams("begins"); err != nil {
		return nil, err
	}
	exec, err := b.gpu.Capture(b.stream, do)
	if err != nil {
		return nil, err
	}
	g := &graph{b, exec}
	if err := b.betweenStreams("ends"); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (b *Backend) betweenStreams(what string) error {
	b.stages.Lock()
	defer b.stages.Unlock()
	for f := range b.folds {
		if !f.between() {
			return fmt.Errorf("cuda: a graph %s amid a stream of gradients: need the whole stream in it, up to Flush, or none of it", what)
		}
	}
	return nil
}

// Replay runs the graph after all work asked for before; it does not wait.
func (g *graph) Replay() error { return g.b.gpu.Replay(g.exec, g.b.stream) }

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
