// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"sync"

	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/cpu/tcdot"
)

// crew is a fixed number of workers for each stage that runs. Stages that run at the same time have a team each; a team, its
// goroutines and its buffers are kept for the next stage.
type crew struct {
	size    int
	kernels kernels
	mu      sync.Mutex
	idle    []*team
	closed  bool
}

// worker is one goroutine of a stage: which one, and its buffers.
type worker struct {
	index int
	*tcdot.Worker
	left   tcdot.Left
	rows   [][]contract.BF16
	floats [2][]float32
	bf16   []contract.BF16
}

func newCrew(size int, k kernels) *crew { return &crew{size: size, kernels: k} }

// each runs do once on every worker, at the same time.
func (c *crew) each(do func(w *worker)) {
	t := c.take()
	defer func() { // also after a panic
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.closed {
			t.stop()
			return
		}
		c.idle = append(c.idle, t)
	}()
	t.run(do)
}

// take gives a team that no other stage uses.
func (c *crew) take() *team {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.idle); n > 0 {
		t := c.idle[n-1]
		c.idle = c.idle[:n-1]
		return t
	}
	return newTeam(c.size, c.kernels)
}

// close ends the goroutines of idle teams at once, and of others when their stage ends.
func (c *crew) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, t := range c.idle {
		t.stop()
	}
	c.idle = nil
}

// share is worker w's part of n things: from one to another.
func (c *crew) share(w, n int) (from, to int) { return w * n / c.size, (w + 1) * n / c.size }

// float gives n floats of undefined contents, of the worker's buffer i.
func (w *worker) float(i, n int) []float32 {
	if cap(w.floats[i]) < n {
		w.floats[i] = make([]float32, n)
	}
	return w.floats[i][:n]
}

// set makes the rows the left operand of the products to come.
func (w *worker) set(rows [][]contract.BF16) { w.left.Set(rows) }

// dot sets out[i*stride+j-from] = tcdot(row i, output j of r) for from <= j < to.
func (w *worker) dot(out []float32, stride int, r tcdot.Right, from, to int) {
	w.Dot(out, stride, &w.left, r, from, to, 0)
}

// together gives the rows one after the other, copied to the worker's buffer.
func (w *worker) together(rows [][]contract.BF16) []contract.BF16 {
	w.bf16 = w.bf16[:0]
	for _, r := range rows {
		w.bf16 = append(w.bf16, r...)
	}
	return w.bf16
}
