// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package cpu is the backend for ordinary processors: blocked products over a fixed partition of the work. Which worker
// does what depends on the plan alone, never on arrival, and no sum is ever split, so the bits do not depend on the workers.
package cpu

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

func init() { backend.Register("cpu", open) }

// Backend implements backend.Backend.
type Backend struct {
	host.Memory
	workers int
	kernels kernels
}

func open(o backend.Options) (backend.Backend, error) {
	workers := o.Workers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	return &Backend{workers: workers, kernels: sets()[0]}, nil
}

func (*Backend) Name() string { return "cpu" }
func (b *Backend) Device() string {
	return fmt.Sprintf("%s/%s, %s kernels, %d workers", runtime.GOOS, runtime.GOARCH, b.kernels.name, b.workers)
}
func (*Backend) Close() error { return nil }

// Load checks the weights' sizes and uses them in place.
func (b *Backend) Load(s backend.Spec) (backend.Layer, error) {
	if err := s.Weights.Check(s.Shape); err != nil {
		return nil, err
	}
	return &layer{Shape: s.Shape, w: s.Weights, bf16Logits: s.BF16Logits, workers: b.workers, kernels: b.kernels}, nil
}

type layer struct {
	contract.Shape
	w          *contract.Weights
	bf16Logits bool
	workers    int
	kernels    kernels
}

func (*layer) Close() error { return nil }

// expert is the weights of group e, the shared expert being group E.
func (l *layer) expert(e int) *contract.Expert {
	if e == l.Experts {
		return l.w.Shared
	}
	return &l.w.Experts[e]
}

// width is group e's width.
func (l *layer) width(e int) int {
	if e == l.Experts {
		return l.SharedWidth
	}
	return l.Width
}

// of is the routed or the shared one of two.
func of[T any](l *layer, e int, routed, shared T) T {
	if e == l.Experts {
		return shared
	}
	return routed
}

// row is row i of a matrix of n columns.
func row[T any](m []T, i, n int) []T { return m[i*n : (i+1)*n : (i+1)*n] }

// rowsOf are the rows of a matrix of n columns.
func rowsOf[T any](m []T, n int) [][]T {
	r := make([][]T, len(m)/n)
	for i := range r {
		r[i] = row(m, i, n)
	}
	return r
}

// each runs do once on every worker, at the same time.
func (l *layer) each(do func(worker int)) {
	var wg sync.WaitGroup
	for w := 1; w < l.workers; w++ {
		wg.Go(func() { do(w) })
	}
	do(0)
	wg.Wait()
}

// share is worker w's part of n things: from one to another.
func (l *layer) share(w, n int) (from, to int) { return w * n / l.workers, (w + 1) * n / l.workers }
