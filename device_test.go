// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit_test

import (
	"errors"
	"time"
	"unsafe"

	"github.com/samebit/samebit/backend"
)

// device is the cpu backend in a GPU's place: addresses are those of the host's memory. What a workspace does around the stages
// can so be tried on any machine.
type device struct{ backend.Backend }

func init() {
	backend.Register("device", func(o backend.Options) (backend.Backend, error) {
		b, err := backend.Open("cpu", o)
		return device{b}, err
	})
}

func (d device) Load(s backend.Spec) (backend.Layer, error) {
	l, err := d.Backend.Load(s)
	return deviceLayer{l, d.Backend}, err
}

type deviceLayer struct {
	backend.Layer
	memory backend.Memory
}

func (l deviceLayer) Queue() (backend.Queue, error) {
	return &deviceQueue{Memory: l.memory, Layer: l.Layer}, nil
}

func (deviceLayer) Held() int64 { return 0 }

// deviceQueue notes how it is used.
type deviceQueue struct {
	backend.Memory
	backend.Layer
	stream  uintptr
	count   backend.Buffer
	stages  int  // that were asked for
	late    int  // calls after Close
	closed  int  // calls of Close
	failing bool // Combine fails
	folds   int  // that are open
}

var errOfDevice = errors.New("the device has failed")

func (q *deviceQueue) called() {
	if q.closed > 0 {
		q.late++
	}
}

func (q *deviceQueue) staged() {
	q.called()
	q.stages++
}

func (q *deviceQueue) Close() error {
	q.closed++
	return nil
}

func (q *deviceQueue) Use(stream uintptr) {
	q.called()
	q.stream = stream
}

func (q *deviceQueue) Count(n backend.Buffer) {
	q.called()
	q.count = n
}

func (*deviceQueue) Held() int64 { return 0 }

func (q *deviceQueue) At(d backend.Dtype, address uintptr, n int) backend.Buffer {
	q.called()
	b, err := q.Wrap(d, unsafe.Slice(*(**byte)(unsafe.Pointer(&address)), n*d.Size()))
	if err != nil {
		panic(err)
	}
	return b
}

func (*deviceQueue) Address(backend.Buffer) uintptr              { panic("not for this device") }
func (*deviceQueue) Capture(func() error) (backend.Graph, error) { return nil, errors.ErrUnsupported }
func (*deviceQueue) Time(func() error) (time.Duration, error)    { return 0, errors.ErrUnsupported }

func (q *deviceQueue) Route(a backend.Route) error {
	q.staged()
	return q.Layer.Route(a)
}

func (q *deviceQueue) Combine(a backend.Combine) error {
	q.staged()
	if q.failing {
		return errOfDevice
	}
	return q.Layer.Combine(a)
}

func (q *deviceQueue) PlanBackward(a backend.PlanBackward) error {
	q.staged()
	return q.Layer.PlanBackward(a)
}

func (q *deviceQueue) NewFold(g *backend.Gradients) (backend.Fold, error) {
	q.called()
	f, err := q.Layer.NewFold(g)
	q.folds++
	return &deviceFold{f, q}, err
}

type deviceFold struct {
	backend.Fold
	queue *deviceQueue
}

func (f *deviceFold) Add(a backend.FoldArgs) error {
	f.queue.staged()
	return f.Fold.Add(a)
}

func (f *deviceFold) Flush() error {
	f.queue.staged()
	return f.Fold.Flush()
}

func (f *deviceFold) Close() error {
	f.queue.called()
	f.queue.folds--
	return f.Fold.Close()
}
