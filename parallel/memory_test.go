// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel_test

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
	"github.com/samebit/samebit/parallel"
)

// counting spreads a backend that counts what of it is in use.
type counting struct {
	*parallel.Rank
	live *live
}

// live is the bytes of buffers, and the numbers of layers and folds.
type live struct{ bytes, layers, folds atomic.Int64 }

func (c counting) Spread(b backend.Backend) backend.Backend {
	return c.Rank.Spread(countingBackend{b, c.live})
}

type countingBackend struct {
	backend.Backend
	live *live
}

func (c countingBackend) Alloc(d backend.Dtype, n int) (backend.Buffer, error) {
	c.live.bytes.Add(int64(n * d.Size()))
	return c.Backend.Alloc(d, n)
}

func (c countingBackend) Free(b backend.Buffer) {
	c.live.bytes.Add(-int64(b.Len() * b.Dtype().Size()))
	c.Backend.Free(b)
}

func (c countingBackend) Load(s backend.Spec) (backend.Layer, error) {
	l, err := c.Backend.Load(s)
	if err != nil {
		return nil, err
	}
	c.live.layers.Add(1)
	return countingLayer{l, c.live}, nil
}

type countingLayer struct {
	backend.Layer
	live *live
}

func (c countingLayer) Close() error {
	c.live.layers.Add(-1)
	return c.Layer.Close()
}

func (c countingLayer) NewFold(g *backend.Gradients) (backend.Fold, error) {
	f, err := c.Layer.NewFold(g)
	if err != nil {
		return nil, err
	}
	c.live.folds.Add(1)
	return countingFold{f, c.live}, nil
}

type countingFold struct {
	backend.Fold
	live *live
}

func (c countingFold) Close() error {
	c.live.folds.Add(-1)
	return c.Fold.Close()
}

// Whatever ranks take of the backend below they give back.
func TestNothingIsLeft(t *testing.T) {
	x, dy := tokens(40, tiny)
	j := job{shape: tiny, w: &weights, o: samebit.Options{MaxTokens: 5}, x: x, calls: [][]int{{17}, {3}, {20}}}
	training, rounded := j, j
	training.dy, rounded.dy, rounded.bf16 = dy, dy, true
	for name, j := range map[string]job{"inference": j, "training": training, "training, BF16": rounded} {
		j.live = new(live)
		j.check(t, few...)
		if bytes, layers, folds := j.live.bytes.Load(), j.live.layers.Load(), j.live.folds.Load(); bytes != 0 || layers != 0 || folds != 0 {
			t.Errorf("%s: %d bytes, %d layers and %d folds are left", name, bytes, layers, folds)
		}
	}
}

// A tape's bytes are those that it holds: also of rows that came from other ranks, and none of buffers that have no memory.
func TestTapeBytes(t *testing.T) {
	const n = 30
	x, _ := tokens(n, tiny)
	for _, grid := range few {
		for _, recompute := range []bool{false, true} {
			errs := joined(grid, func(i int, r *parallel.Rank) error {
				live := new(live)
				l, err := samebit.New(tiny, &weights, samebit.Options{Ranks: counting{r, live}, Recompute: recompute})
				if err != nil {
					return err
				}
				defer l.Close()
				before := live.bytes.Load()
				_, ep := grid.At(i)
				mine := x
				if ep > 0 {
					mine = nil
				}
				out, err := l.Forward(mine, samebit.Train)
				if err != nil {
					return err
				}
				held, plans := live.bytes.Load()-before, int64(4*(tiny.Experts+2+n*(3*(tiny.TopK+1)+3*tiny.TopK)))
				if have := out.Tape.Bytes(); have < held || have > held+plans {
					t.Errorf("%v, Recompute %t: rank %d: %d bytes, want %d and at most %d for plans", grid, recompute, i, have, held, plans)
				}
				if g, tokens := out.Tape.Bytes(), len(mine); !recompute && g == 0 && tokens == 0 && ep == 1 {
					t.Errorf("%v: rank %d holds nothing of the rows that came", grid, i)
				}
				out.Tape.Free()
				if left := live.bytes.Load() - before; left != 0 {
					t.Errorf("%v, Recompute %t: rank %d: %d bytes are left of a tape that was freed", grid, recompute, i, left)
				}
				return nil
			})
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
		}
	}
}

// Making a rank's layer takes from the heap what the slices need, and no more: what crosses goes through the same memory for every
// expert.
func TestWeightsAreMadeOnce(t *testing.T) {
	s := contract.Shape{Hidden: 256, Experts: 64, TopK: 4, Width: 128, SharedWidth: 128, NormTopK: true}
	w := testgen.Weights(s, 1)
	taken := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.TotalAlloc)
	}
	before := taken()
	errs := joined(parallel.Grid{TP: 2, EP: 1}, func(i int, r *parallel.Rank) error {
		l, err := samebit.New(s, &w, samebit.Options{Ranks: r})
		if err != nil {
			return err
		}
		return l.Close()
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	// Each rank its outer slices, half of all, and the columns of down that are its own, a sixth.
	if all, size := taken()-before, int64(2*s.Whole().Size()); all > size*9/4 {
		t.Errorf("two ranks take %d bytes from the heap, of weights of %d: want four thirds as many, and little beside", all, size)
	}
}

// Of the slices' weights the host keeps none beside those that were given: the backend has copies, which are not in Go's heap.
func TestWeightsAreNotKept(t *testing.T) {
	s, err := testgen.Shape("mid")
	if err != nil {
		t.Fatal(err)
	}
	w := testgen.Weights(s, 1)
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	errs := joined(parallel.Grid{TP: 2, EP: 1}, func(i int, r *parallel.Rank) error {
		l, err := samebit.New(s, &w, samebit.Options{Ranks: r})
		if err != nil {
			return err
		}
		defer l.Close()
		for _, after := range []string{"New", "Refresh"} {
			if err := r.Group.Barrier(); err != nil {
				return err
			}
			if kept, size := heap()-before, int64(2*s.Whole().Size()); i == 0 && kept > size/4 {
				t.Errorf("after %s two ranks keep %d bytes in the heap, of weights of %d: want at most a quarter", after, kept, size)
			}
			if err := r.Group.Barrier(); err != nil {
				return err
			}
			if err := l.Refresh(); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	runtime.KeepAlive(&w)
}
