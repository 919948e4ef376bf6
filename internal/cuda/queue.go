// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/internal/cuda/driver"
)

// queue implements backend.Queue: the layer on a Backend of its own, which shares the GPU, its kernels and the weights.
type queue struct {
	*layer
	own driver.Stream
}

// Queue makes a queue of work on the layer's weights.
func (l *layer) Queue() (backend.Queue, error) {
	own, err := l.gpu.NewStream()
	if err != nil {
		return nil, err
	}
	b := &Backend{memory: memory{gpu: l.gpu, stream: own}, kernels: l.kernels, last: unknown}
	return &queue{&layer{Backend: b, Shape: l.Shape, from: l.from, w: l.w, bf16Logits: l.bf16Logits}, own}, nil
}

// Use puts what follows into the caller's stream, after what others may have put there.
func (q *queue) Use(stream uintptr) {
	q.stream = driver.Stream(stream)
	q.forget()
}

// Count has stages read their number of tokens on the GPU.
func (q *queue) Count(n backend.Buffer) { q.tokens = i32(n) }

// At makes a buffer of the caller's memory.
func (*queue) At(d backend.Dtype, address uintptr, n int) backend.Buffer {
	return &buffer{dtype: d, at: pointer(address), n: n}
}

// Address is where a buffer lies.
func (*queue) Address(b backend.Buffer) uintptr { return uintptr(b.(*buffer).at) }

// Refresh refuses: the weights are the layer's.
func (*queue) Refresh() error {
	return errors.New("cuda: a queue cannot refresh the layer's weights: need the layer itself")
}

// Close waits for the work, and gives the queue's memory back; the weights stay.
func (q *queue) Close() error { return errors.Join(q.memory.close(), q.gpu.FreeStream(q.own)) }
