// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/internal/cuda/driver"
)

// buffer is a vector on the GPU.
type buffer struct {
	dtype backend.Dtype
	at    pointer // 0 where it has no elements
	n     int
	room  int      // bytes that were allocated; 0 in a slice
	tiles *tileSet // of the Offsets of a plan: its tiles
}

func (b *buffer) Dtype() backend.Dtype { return b.dtype }
func (b *buffer) Len() int             { return b.n }
func (b *buffer) bytes() int           { return b.n * b.dtype.Size() }
func (b *buffer) Slice(from, to int) backend.Buffer {
	if from < 0 || to < from || to > b.n {
		panic("cuda: slice out of range")
	}
	return &buffer{dtype: b.dtype, at: b.at + pointer(from*b.dtype.Size()), n: to - from}
}

// at is where a buffer lies; 0 for none.
func at(b backend.Buffer, d backend.Dtype) pointer {
	if b == nil {
		return 0
	}
	if b.Dtype() != d {
		panic("cuda: a buffer of another type")
	}
	return b.(*buffer).at
}

func bf16(b backend.Buffer) pointer { return at(b, backend.BF16) }
func fp32(b backend.Buffer) pointer { return at(b, backend.FP32) }
func i32(b backend.Buffer) pointer  { return at(b, backend.I32) }

// memory implements backend.Memory. What is freed waits here to be used again: all work is in one stream, so whoever has it
// next comes after whoever had it last.
type memory struct {
	gpu    *driver.Device
	stream driver.Stream
	mu     sync.Mutex
	idle   map[int][]pointer // by size
	all    map[pointer]int
	kept   map[pointer]int // by how many, beside its owner
	late   map[pointer]int // given back while it was kept: the size
}

// sizeClass rounds up to four sizes an octave.
func sizeClass(n int) int {
	const least = 512
	if n <= least {
		return least
	}
	step := 1 << (bits.Len(uint(n-1)) - 3)
	return (n + step - 1) / step * step
}

// take gives n bytes.
func (m *memory) take(n int) (pointer, int, error) {
	if n == 0 {
		return 0, 0, nil
	}
	size := sizeClass(n)
	m.mu.Lock()
	defer m.mu.Unlock()
	if idle := m.idle[size]; len(idle) > 0 {
		m.idle[size] = idle[:len(idle)-1]
		return idle[len(idle)-1], size, nil
	}
	p, err := m.gpu.Alloc(size)
	if failed := (*driver.Error)(nil); errors.As(err, &failed) && len(m.all) > 0 { // perhaps what is idle is in the way
		if e := m.trim(); e != nil {
			return 0, 0, e
		}
		p, err = m.gpu.Alloc(size)
	}
	if err != nil {
		return 0, 0, err
	}
	if m.all == nil {
		m.idle, m.all = map[int][]pointer{}, map[pointer]int{}
	}
	m.all[p] = size
	return p, size, nil
}

// Held is how many bytes of the GPU's memory this has, also those that wait to be used again.
func (m *memory) Held() (bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.all {
		bytes += int64(n)
	}
	return bytes
}

// trim gives idle memory back to the driver.
func (m *memory) trim() error {
	if err := m.gpu.Wait(m.stream); err != nil {
		return err
	}
	for _, idle := range m.idle {
		for _, p := range idle {
			if err := m.gpu.Free(p); err != nil {
				return err
			}
			delete(m.all, p)
		}
	}
	clear(m.idle)
	return nil
}

func (m *memory) give(p pointer, room int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case room == 0 || m.all == nil: // nothing, or closed
	case m.kept[p] > 0:
		m.late[p] = room
	default:
		m.idle[room] = append(m.idle[room], p)
	}
}

// keep has a buffer's memory stay as it is when its owner gives the buffer back, until letGo. That cannot be for a slice.
func (m *memory) keep(b *buffer) bool {
	if b.room == 0 {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept == nil {
		m.kept, m.late = map[pointer]int{}, map[pointer]int{}
	}
	m.kept[b.at]++
	return true
}

func (m *memory) letGo(p pointer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept[p]--
	if m.kept[p] > 0 {
		return
	}
	delete(m.kept, p)
	if room := m.late[p]; room > 0 && m.all != nil {
		m.idle[room] = append(m.idle[room], p)
	}
	delete(m.late, p)
}

// Alloc gives n elements.
func (m *memory) Alloc(d backend.Dtype, n int) (backend.Buffer, error) {
	if n < 0 {
		return nil, fmt.Errorf("cuda memory: %d elements of %v: need at least 0", n, d)
	}
	p, room, err := m.take(n * d.Size())
	if err != nil {
		return nil, err
	}
	return &buffer{dtype: d, at: p, n: n, room: room}, nil
}

// Free gives the buffer back.
func (m *memory) Free(b backend.Buffer) {
	if b == nil {
		return
	}
	v := b.(*buffer)
	m.give(v.at, v.room)
	for t := v.tiles; t != nil; t = t.other {
		m.release(&t.scratch)
	}
	*v = buffer{dtype: v.dtype}
}

// Zero sets every element to +0.
func (m *memory) Zero(b backend.Buffer) error {
	v := b.(*buffer)
	return m.gpu.Fill(v.at, 0, v.bytes(), m.stream)
}

// Write copies host memory to the GPU.
func (m *memory) Write(dst backend.Buffer, src []byte) error {
	v := dst.(*buffer)
	if len(src) != v.bytes() {
		return fmt.Errorf("cuda memory: copy of %d bytes to %d: need as many", len(src), v.bytes())
	}
	return m.gpu.ToDevice(v.at, src, m.stream)
}

// Read copies a buffer to the host, after all work before.
func (m *memory) Read(dst []byte, src backend.Buffer) error {
	v := src.(*buffer)
	if len(dst) != v.bytes() {
		return fmt.Errorf("cuda memory: copy of %d bytes to %d: need as many", v.bytes(), len(dst))
	}
	return m.gpu.ToHost(dst, v.at, m.stream)
}

// Wrap refuses: the GPU's memory is elsewhere.
func (*memory) Wrap(backend.Dtype, []byte) (backend.Buffer, error) {
	return nil, fmt.Errorf("cuda memory: %w", backend.ErrElsewhere)
}

func (m *memory) close() error {
	var err error
	if m.stream != 0 {
		err = m.gpu.Wait(m.stream)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.all {
		err = errors.Join(err, m.gpu.Free(p))
	}
	m.all, m.idle = nil, nil
	return err
}

// scratch is memory of a layer that grows as it must. What it outgrew stays until the layer is closed, for a graph that was captured
// before goes on using it.
type scratch struct {
	at       pointer
	room     int
	outgrown *scratch
}

// scratch makes s hold n bytes.
func (m *memory) scratch(s *scratch, n int) (pointer, error) {
	if n > s.room {
		at, room, err := m.take(n)
		if err != nil {
			return 0, err
		}
		old := *s
		*s = scratch{at, room, &old}
	}
	return s.at, nil
}

// release gives it back, and what it outgrew.
func (m *memory) release(s *scratch) {
	for ; s != nil; s = s.outgrown {
		m.give(s.at, s.room)
	}
}
