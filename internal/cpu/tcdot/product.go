// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package tcdot

import (
	"math"
	"unsafe"

	"github.com/samebit/samebit/contract"
)

// rowBlock is how many rows' running sums stay in L1.
const rowBlock = 32

// Worker computes products for one goroutine, in buffers of its own.
type Worker struct {
	isa         *ISA
	panel       []byte
	pairs       []uint32
	acc         []float32
	tmp         []float32
	side        []uint16
	scale       []float32
	directScale []float32
	bad         []byte
	output      []contract.BF16
	flat        portable
	folded      Left
	turned      []contract.BF16
	turns       [][]contract.BF16
}

// NewWorker makes one for an instruction set of Sets.
func NewWorker(s *ISA) *Worker {
	w := &Worker{isa: s}
	if s.lanes > 0 {
		w.panel = aligned(nil, 32*s.stride())
		w.pairs = lines[uint32](pairs * s.lanes)
		w.acc, w.tmp = lines[float32](rowBlock*s.lanes), lines[float32](rowBlock*s.lanes)
		w.side = lines[uint16](32 * s.lanes)
		w.scale, w.directScale, w.bad = make([]float32, rowBlock), make([]float32, rowBlock), make([]byte, rowBlock)
	}
	return w
}

// product is one call's operands and where the outputs from <= j < to of row i go: out[i*stride+j-from].
type product struct {
	x        *Left
	r        Right
	out      []float32
	stride   int
	from, to int
	segment  int // 0 for one; a multiple of 16
	add      bool
}

func (p *product) at(i, j int) []float32 { return p.out[i*p.stride+j-p.from:] }

// Dot sets out[i*stride+j-from] = tcdot(row i of x, output j of r; segment) for from <= j < to (R1, R2). Segment is a
// multiple of 16, or 0 for none; from is one of 64 where r is packed.
func (o *Worker) Dot(out []float32, stride int, x *Left, r Right, from, to, segment int) {
	if segment%group != 0 {
		panic("tcdot: a segment is a multiple of 16")
	}
	if r.packed != nil && from%o.isa.lanes != 0 {
		panic("tcdot: part of a panel of packed outputs")
	}
	o.run(&product{x: x, r: r, out: out, stride: stride, from: from, to: to, segment: segment})
}

// Fold sets acc[(i-from)*stride+j] = RN(acc + tcdot(column i of a, column j of b)) for from <= i < to and all j; a NaN is
// 0x7FFFFFFF (R11). a and b [T,.] have a row for each k, b's lying one after the other.
func (o *Worker) Fold(acc []float32, stride int, a [][]contract.BF16, from, to int, b []contract.BF16) {
	t := len(a)
	o.turned, o.turns = grow(o.turned, t*(to-from)), o.turns[:0]
	for k, row := range a {
		for i, v := range row[from:to] {
			o.turned[i*t+k] = v
		}
	}
	for i := range to - from {
		o.turns = append(o.turns, o.turned[i*t:][:t])
	}
	o.folded.Set(o.turns)
	m := len(b) / t
	o.run(&product{x: &o.folded, r: Columns(m, Top(b), b), out: acc, stride: stride, to: m, add: true})
}

func (o *Worker) run(p *product) {
	switch {
	case p.x.n == 0 || p.from >= p.to:
		return
	case p.x.k != p.r.k:
		panic("tcdot: operands of different lengths")
	case o.isa.lanes == 0:
		o.flat.run(o, p)
		return
	}
	for n0 := 0; n0 < p.x.n; n0 += rowBlock {
		n := min(rowBlock, p.x.n-n0)
		some := false
		for i := range n {
			if top := p.x.top[n0+i]; fast(top, p.r.top) {
				o.scale[i], some = float(pow2(top+p.r.top-254)), true
			}
		}
		if !some { // no panel in vain: it would leave every row to slow
			o.slow(p, n0, n, p.from, p.to)
			continue
		}
		direct := o.directFit(p, n0, n)
		for m0 := p.from; m0 < p.to; m0 += o.isa.lanes {
			if direct && p.to-m0 >= o.isa.lanes && o.directOf(p, n0, n, m0) {
				continue
			}
			o.panelOf(p, n0, n, m0)
		}
	}
}

// slow computes n rows by some outputs by the contract.
func (o *Worker) slow(p *product, n0, n, from, to int) {
	segment := p.segment
	if segment == 0 {
		segment = max(p.x.k, 1)
	}
	o.output = grow(o.output, p.r.k)
	for j := from; j < to; j++ {
		p.r.output(j, o.output)
		for i := n0; i < n0+n; i++ {
			at := &p.at(i, j)[0]
			if d := contract.TCDotSegments(p.x.rows[i], o.output, segment); p.add {
				accumulate(at, d)
			} else {
				*at = d
			}
		}
	}
}

// accumulate adds v, rounding to nearest even; a NaN is 0x7FFFFFFF (R0).
func accumulate(acc *float32, v float32) {
	s := *acc + v
	if s != s {
		s = math.Float32frombits(0x7FFFFFFF)
	}
	*acc = s
}

// sideWords is side as 32-bit words.
func (o *Worker) sideWords() []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(&o.side[0])), len(o.side)/2)
}
