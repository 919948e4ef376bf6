// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import "github.com/samebit/samebit/backend"

// buffer is a buffer of a rank. It gets memory when it is first used: of the rows that other ranks work on, and of those that come
// from them, which have memory of their own, never.
type buffer struct {
	m     *machine
	dtype backend.Dtype
	n     int
	below backend.Buffer // nil until it is used

	carried carried // what goes with it: with a plan's Offsets, the rows' way to other ranks; with h, the rows that came from them
}

type carried interface {
	close()
	bytes() int64
}

func (b *buffer) Dtype() backend.Dtype { return b.dtype }
func (b *buffer) Len() int             { return b.n }

// Bytes is the memory that it has, with what goes with it.
func (b *buffer) Bytes() (n int64) {
	if b.below != nil {
		n = int64(b.n * b.dtype.Size())
	}
	if b.carried != nil {
		n += b.carried.bytes()
	}
	return n
}

// Slice needs memory; where there is none it panics, since it cannot say so.
func (b *buffer) Slice(from, to int) backend.Buffer {
	part, err := b.use()
	if err != nil {
		panic(err)
	}
	return &buffer{m: b.m, dtype: b.dtype, n: to - from, below: part.Slice(from, to)}
}

// carry keeps what goes with the buffer, in place of what went before.
func (b *buffer) carry(c carried) {
	if b.carried != nil {
		b.carried.close()
	}
	b.carried = c
}

// use gives the buffer of the backend below.
func (b *buffer) use() (backend.Buffer, error) {
	var err error
	if b.below == nil {
		b.below, err = b.m.Backend.Alloc(b.dtype, b.n)
	}
	return b.below, err
}

func (m *machine) Alloc(d backend.Dtype, n int) (backend.Buffer, error) {
	return &buffer{m: m, dtype: d, n: n}, nil
}

func (m *machine) Free(b backend.Buffer) {
	v, _ := b.(*buffer)
	if v == nil {
		return
	}
	if v.carried != nil {
		v.carried.close()
	}
	if v.below != nil {
		m.Backend.Free(v.below)
	}
	v.below, v.carried = nil, nil
}

func (m *machine) Zero(b backend.Buffer) error {
	below, err := b.(*buffer).use()
	if err != nil {
		return err
	}
	return m.Backend.Zero(below)
}

func (m *machine) Write(dst backend.Buffer, src []byte) error {
	below, err := dst.(*buffer).use()
	if err != nil {
		return err
	}
	return m.Backend.Write(below, src)
}

func (m *machine) Read(dst []byte, src backend.Buffer) error {
	below, err := src.(*buffer).use()
	if err != nil {
		return err
	}
	return m.Backend.Read(dst, below)
}

func (m *machine) Wrap(d backend.Dtype, data []byte) (backend.Buffer, error) {
	below, err := m.Backend.Wrap(d, data)
	if err != nil {
		return nil, err
	}
	return &buffer{m: m, dtype: d, n: len(data) / d.Size(), below: below}, nil
}
