// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"time"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/internal/host"
)

// mostInGraph is how many forwards of different tokens stand in one graph at the most, and together they have graphTokens or
// are one: so that an expert's weights do not wait in the GPU's cache from one forward of it to the next.
const (
	mostInGraph = 16
	graphTokens = 1024
)

// onDevice is a pass over tokens that lie on a GPU, captured in a graph.
type onDevice struct {
	workspace *samebit.Workspace
	graph     backend.Graph
	forwards  int
	experts   float64 // with a token, of one forward on average
}

// newOnDevice captures forwards of tokens x, so many a forward.
func newOnDevice(l *samebit.Layer, x []samebit.BF16, tokens int) (*onDevice, error) {
	w, err := l.NewWorkspace(tokens)
	if err != nil {
		return nil, err
	}
	d := &onDevice{workspace: w, forwards: max(1, min(mostInGraph, graphTokens/tokens))}
	if err := d.capture(l, x, tokens); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *onDevice) capture(l *samebit.Layer, x []samebit.BF16, tokens int) error {
	q, s := d.workspace.Queue(), l.Shape()
	size := tokens * s.Hidden
	in, err := q.Alloc(backend.BF16, d.forwards*size)
	if err != nil {
		return err
	}
	out, err := q.Alloc(backend.BF16, d.forwards*size)
	if err != nil {
		return err
	}
	ids, err := q.Alloc(backend.I32, d.forwards*tokens*s.TopK)
	if err != nil {
		return err
	}
	if err := q.Write(in, host.Bytes(x[:d.forwards*size])); err != nil {
		return err
	}
	all := func() error {
		for i := range d.forwards {
			t := samebit.Tensors{X: q.Address(in.Slice(i*size, (i+1)*size)), Y: q.Address(out.Slice(i*size, (i+1)*size)),
				IDs: q.Address(ids.Slice(i*tokens*s.TopK, (i+1)*tokens*s.TopK))}
			if err := d.workspace.Enqueue(t, tokens); err != nil {
				return err
			}
		}
		return nil
	}
	if err := all(); err != nil {
		return err
	}
	went := make([]int32, ids.Len())
	if err := q.Read(host.Bytes(went), ids); err != nil {
		return err
	}
	for i := range d.forwards {
		seen := map[int32]bool{}
		for _, e := range went[i*tokens*s.TopK : (i+1)*tokens*s.TopK] {
			seen[e] = true
		}
		d.experts += float64(len(seen)) / float64(d.forwards)
	}
	d.graph, err = q.Capture(all)
	return err
}

// run is one forward's part of a replay.
func (d *onDevice) run() (Run, error) {
	spent, err := d.workspace.Queue().Time(d.graph.Replay)
	return Run{spent / time.Duration(d.forwards), d.experts}, err
}

// memory is the GPU's.
func (d *onDevice) memory() Memory {
	layer, workspace := d.workspace.Held()
	return Memory{Peak: layer + workspace, Loaded: layer, Workspace: workspace}
}

func (d *onDevice) close() error {
	var err error
	if d.graph != nil {
		err = d.graph.Close()
	}
	return errors.Join(err, d.workspace.Close())
}
