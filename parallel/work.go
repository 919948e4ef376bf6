// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/internal/host"
)

// work is buffers of the backend below that go together. Its first error stops all that follows, on this rank and, since they
// would wait for it, on the others.
type work struct {
	*machine
	buffers []backend.Buffer
	err     *error
}

func (m *machine) newWork() *work { return &work{machine: m, err: new(error)} }

// brief is work with buffers that can go sooner.
func (w *work) brief() *work { return &work{machine: w.machine, err: w.err} }

func (w *work) run(do func() error) {
	if *w.err == nil {
		if *w.err = do(); *w.err != nil {
			w.Group.Abort(*w.err)
		}
	}
}

// close gives the buffers back.
func (w *work) close() {
	for _, b := range w.buffers {
		w.Backend.Free(b)
	}
	w.buffers = nil
}

// bytes is how much memory the buffers have.
func (w *work) bytes() (n int64) {
	for _, b := range w.buffers {
		n += int64(b.Len() * b.Dtype().Size())
	}
	return n
}

func (w *work) alloc(d backend.Dtype, n int) (b backend.Buffer) {
	w.run(func() (err error) {
		if b, err = w.Backend.Alloc(d, n); err == nil {
			w.buffers = append(w.buffers, b)
		}
		return err
	})
	return b
}

// zeros is n of +0.
func (w *work) zeros(d backend.Dtype, n int) backend.Buffer {
	b := w.alloc(d, n)
	w.run(func() error { return w.Backend.Zero(b) })
	return b
}

// of is the buffer below one of a rank; nil of nil.
func (w *work) of(b backend.Buffer) (below backend.Buffer) {
	if v, _ := b.(*buffer); v != nil {
		w.run(func() (err error) {
			below, err = v.use()
			return err
		})
	}
	return below
}

// put copies to a buffer below.
func put[T any](w *work, to backend.Buffer, from []T) {
	w.run(func() error { return w.Backend.Write(to, host.Bytes(from)) })
}

// get copies the first n elements of a buffer below.
func get[T any](w *work, from backend.Buffer, n int) []T {
	v := make([]T, n)
	w.run(func() error { return w.Backend.Read(host.Bytes(v), from.Slice(0, n)) })
	return v
}

// made is a new buffer below, of these elements.
func made[T any](w *work, d backend.Dtype, v []T) backend.Buffer {
	b := w.alloc(d, len(v))
	put(w, b, v)
	return b
}
