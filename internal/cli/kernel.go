// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import (
	"math"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
)

// A backend has no entry for a bare product, and needs none: the gate and up projections of one expert are products of the
// same kernels that a layer runs (R6). The expert's weights are a, its tokens b. A projection begins at +0 where the vectors
// begin at c; so c is the sum of the first groups: each value is cut into three BF16 numbers of 8 bits, which add up exactly,
// and a token that is 1 in one place of a group and 0 elsewhere takes its own column of c from it.

const (
	group  = 16               // R1's
	pieces = 3                // of 8 bits make FP32's 24
	before = pieces * group   // columns that make c
	lift   = float32(1 << 60) // brings subnormal values of c to where 8 bits are a BF16 number
)

// throughLayer is the product by a backend's kernels: as the gate's and as the up projection's. It reports false where the
// product cannot be laid out so.
func (p *product) throughLayer(b backend.Backend) (gate, up []float32, ok bool, err error) {
	a, x, ok := p.layout()
	if !ok {
		return nil, nil, false, nil
	}
	hidden := before + p.k
	zeros := func(n int) []contract.BF16 { return make([]contract.BF16, n) }
	s := contract.Shape{Hidden: hidden, Experts: 1, TopK: 1, Width: p.m, NormTopK: true}
	w := &contract.Weights{Router: zeros(hidden), Experts: []contract.Expert{{Gate: a, Up: a, Down: zeros(hidden * p.m)}}}
	layer, err := b.Load(backend.Spec{Shape: s, Weights: w})
	if err != nil {
		return nil, nil, true, err
	}
	defer layer.Close()
	m := memory{Backend: b}
	defer m.free()
	rows := backend.Rows{Tokens: p.n, Slots: 1, Offsets: m.alloc(backend.I32, 3),
		Token: m.alloc(backend.I32, 2*p.n), Slot: m.alloc(backend.I32, 2*p.n), Row: m.alloc(backend.I32, 2*p.n)}
	ids, tokens := m.alloc(backend.I32, p.n), m.alloc(backend.BF16, p.n*hidden)
	out := backend.Activations{G: m.alloc(backend.FP32, p.n*p.m), U: m.alloc(backend.FP32, p.n*p.m), H: m.alloc(backend.BF16, p.n*p.m)}
	gate, up = make([]float32, p.n*p.m), make([]float32, p.n*p.m)
	m.do(func() error { return b.Write(ids, safetensors.Bytes(make([]int32, p.n))) })
	m.do(func() error { return b.Write(tokens, safetensors.Bytes(x)) })
	m.do(func() error { return layer.Plan(backend.Plan{IDs: ids, Rows: rows}) })
	m.do(func() error { return layer.GateUp(backend.GateUp{X: tokens, Rows: rows, Routed: out}) })
	m.do(func() error { return b.Read(safetensors.Bytes(gate), out.G) })
	m.do(func() error { return b.Read(safetensors.Bytes(up), out.U) })
	return p.transposed(gate), p.transposed(up), true, m.err
}

// layout is a [M,48+K] and b [N,48+K], whose products are p's; false where c does not fit.
func (p *product) layout() (a, b []contract.BF16, ok bool) {
	if p.n > group {
		return nil, nil, false
	}
	scale := float32(1)
	if largest(p.c) < 1/lift {
		scale = lift
	}
	for i := range p.m {
		columns := make([]contract.BF16, before)
		for j, c := range row(p.c, i, p.n) {
			rest := c * scale
			for piece := range pieces {
				columns[piece*group+j] = contract.BF16(math.Float32bits(rest) >> 16) // cut off, so that the rest has fewer bits
				rest -= columns[piece*group+j].Float32()
			}
			if rest != 0 { // also for a c that is not finite
				return nil, nil, false
			}
		}
		a = append(append(a, columns...), row(p.a, i, p.k)...)
	}
	for j := range p.n {
		columns := make([]contract.BF16, before)
		for piece := range pieces {
			columns[piece*group+j] = contract.Round(1 / scale)
		}
		b = append(append(b, columns...), row(p.b, j, p.k)...)
	}
	return a, b, true
}

// largest is the largest magnitude.
func largest(v []float32) float32 {
	most := float32(0)
	for _, x := range v {
		most = max(most, float32(math.Abs(float64(x))))
	}
	return most
}

// transposed is v [N,M] as [M,N].
func (p *product) transposed(v []float32) []float32 {
	t := make([]float32, len(v))
	for j := range p.n {
		for i := range p.m {
			t[i*p.n+j] = v[j*p.m+i]
		}
	}
	return t
}

// memory is buffers that are freed together. Its first error stops all that follows.
type memory struct {
	backend.Backend
	buffers []backend.Buffer
	err     error
}

func (m *memory) alloc(d backend.Dtype, n int) (b backend.Buffer) {
	m.do(func() (err error) {
		if b, err = m.Alloc(d, n); err == nil {
			m.buffers = append(m.buffers, b)
		}
		return err
	})
	return b
}

func (m *memory) do(step func() error) {
	if m.err == nil {
		m.err = step()
	}
}

func (m *memory) free() {
	for _, b := range m.buffers {
		m.Free(b)
	}
}
