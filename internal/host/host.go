// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package host is a backend.Memory in the memory of this process, for the backends that run there.
package host

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
)

// Memory implements backend.Memory. Buffers that are given back are used again, so that the same work over and over leaves
// nothing to the collector.
type Memory struct {
	mu   sync.Mutex
	idle map[int][][]byte // by size
}

type buffer struct {
	dtype backend.Dtype
	data  []byte
}

func (b *buffer) Dtype() backend.Dtype { return b.dtype }
func (b *buffer) Len() int             { return len(b.data) / b.dtype.Size() }
func (b *buffer) Slice(from, to int) backend.Buffer {
	size := b.dtype.Size()
	return &buffer{b.dtype, b.data[from*size : to*size : to*size]}
}

// Alloc gives n elements.
func (m *Memory) Alloc(d backend.Dtype, n int) (backend.Buffer, error) {
	if n < 0 {
		return nil, fmt.Errorf("host memory: %d elements of %v: need at least 0", n, d)
	}
	size := sizeClass(n * d.Size())
	m.mu.Lock()
	defer m.mu.Unlock()
	if idle := m.idle[size]; len(idle) > 0 {
		m.idle[size] = idle[:len(idle)-1]
		return &buffer{d, idle[len(idle)-1][:n*d.Size()]}, nil
	}
	return &buffer{d, Bytes(Floats(size / 4))[:n*d.Size()]}, nil
}

// Free keeps the buffer's memory for another.
func (m *Memory) Free(b backend.Buffer) {
	data := b.(*buffer).data
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.idle == nil {
		m.idle = map[int][][]byte{}
	}
	m.idle[cap(data)] = append(m.idle[cap(data)], data[:cap(data)])
}

// Floats are n zeros, in huge pages where the system has them and it is worth while: first touched a small page at a time,
// gigabytes take seconds.
func Floats(n int) []float32 {
	// Made of words, so that every element type is aligned.
	words := make([]uint64, (n+1)/2)
	wishHuge(Bytes(words))
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

// sizeClass rounds up by an eighth at the most, so that batches of about one size use the same memory.
func sizeClass(n int) int {
	step := 64
	for step*16 <= n {
		step *= 2
	}
	return (n + step - 1) / step * step
}

// Zero clears the buffer.
func (*Memory) Zero(b backend.Buffer) error {
	clear(b.(*buffer).data)
	return nil
}

func (*Memory) Write(dst backend.Buffer, src []byte) error { return move(dst.(*buffer).data, src) }
func (*Memory) Read(dst []byte, src backend.Buffer) error  { return move(dst, src.(*buffer).data) }

func move(dst, src []byte) error {
	if len(dst) != len(src) {
		return fmt.Errorf("host memory: copy of %d bytes to %d: need as many", len(src), len(dst))
	}
	copy(dst, src)
	return nil
}

// Wrap uses the memory in place.
func (*Memory) Wrap(d backend.Dtype, data []byte) (backend.Buffer, error) {
	if len(data)%d.Size() != 0 {
		return nil, fmt.Errorf("host memory: %d bytes: need a multiple of %d for %v", len(data), d.Size(), d)
	}
	return &buffer{d, data}, nil
}

// Bytes is the memory of v.
func Bytes[T any](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))
}

// BF16 is a buffer's memory; the buffer must be one of this package's, of this type; nil gives nil.
func BF16(b backend.Buffer) []contract.BF16 { return view[contract.BF16](b, backend.BF16) }

// FP32 is as BF16.
func FP32(b backend.Buffer) []float32 { return view[float32](b, backend.FP32) }

// I32 is as BF16.
func I32(b backend.Buffer) []int32 { return view[int32](b, backend.I32) }

func view[T any](b backend.Buffer, d backend.Dtype) []T {
	if b == nil {
		return nil
	}
	h := b.(*buffer)
	if h.dtype != d {
		panic("host: a buffer of another type")
	}
	if len(h.data) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&h.data[0])), h.Len())
}
