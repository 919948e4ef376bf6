// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package tcdot

import "github.com/samebit/samebit/contract"

// Packed is a matrix [M,K] in the order in which the kernels read it: panels of rows, in each chunks of 32 k, in each 16
// lines of k-pairs, a word a row. It is as large as the matrix but for padding, and serves both as Rows and as Columns.
// Read in one sweep it comes from memory half as fast again as a matrix whose rows lie a page apart.
type Packed struct {
	m, k, top int
	isa       *ISA
	data      []uint32
}

// pairs are the lines of a chunk, which is 32 k.
const pairs = 16

// Words is how many 32-bit words a packed matrix [M,K] takes; 0 where the instruction set packs nothing.
func (s *ISA) Words(m, k int) int {
	if s.lanes == 0 {
		return 0
	}
	return (m + s.lanes - 1) / s.lanes * s.lanes * ((k + 31) / 32) * pairs
}

// Pack lays w [M,K] out in data, of Words elements.
func (o *Worker) Pack(w []contract.BF16, k int, data []uint32) *Packed {
	s, lanes := o.isa, o.isa.lanes
	p := &Packed{m: len(w) / k, k: k, top: Top(w), isa: s, data: data[:s.Words(len(w)/k, k)]}
	all := words(w)
	for m0 := 0; m0 < p.m; m0 += lanes {
		for k0 := 0; k0 < k; k0 += 32 {
			from, stride := all[m0*k+k0:], k
			if wide, n := min(lanes, p.m-m0), min(32, k-k0); wide < lanes || n < 32 {
				clear(o.side)
				for j := range wide {
					copy(o.side[j*32:], from[j*k:][:n])
				}
				from, stride = o.side, 32
			}
			s.transpose(&from[0], 2*stride, &p.chunk(m0, k0)[0])
		}
	}
	return p
}

// Top is the matrix's top.
func (p *Packed) Top() int { return p.top }

// Rows is the right operand of x * w^T.
func (p *Packed) Rows() Right { return Right{outputs: p.m, k: p.k, top: p.top, packed: []*Packed{p}} }

// PackedColumns is Columns of packed matrices, one below the other.
func PackedColumns(parts ...*Packed) Right {
	r := Right{outputs: parts[0].k, columns: true, packed: parts}
	for _, p := range parts {
		r.k += p.m
		r.top = max(r.top, p.top)
	}
	return r
}

// chunk is the one that holds row m and column k, which are the first of a panel and of a chunk.
func (p *Packed) chunk(m, k int) []uint32 {
	n := pairs * p.isa.lanes
	return p.data[(m/p.isa.lanes*((p.k+31)/32)+k/32)*n:][:n]
}

// panel is the chunks of the rows from m on, which is the first of a panel.
func (p *Packed) panel(m int) []uint32 {
	n := p.isa.lanes * ((p.k + 31) / 32) * pairs
	return p.data[m/p.isa.lanes*n:][:n]
}

func (p *Packed) at(m, k int) contract.BF16 {
	lanes := p.isa.lanes
	return contract.BF16(p.chunk(m/lanes*lanes, k)[k%32/2*lanes+m%lanes] >> (k % 2 * 16))
}

// output copies row or column j of the parts to the front of into.
func (r *Right) packedOutput(j int, into []contract.BF16) {
	if !r.columns {
		for k := range r.k {
			into[k] = r.packed[0].at(j, k)
		}
		return
	}
	at := 0
	for _, p := range r.packed {
		for m := range p.m {
			into[at] = p.at(m, j)
			at++
		}
	}
}

// packedColumns is nk rows of a panel's columns, from row k0 on, turned back from the chunks that hold them and copied aside.
// It reports how far apart they are.
func (o *Worker) packedColumns(r *Right, m0, wide, k0, nk int) (w []uint16, stride int) {
	s, lanes := o.isa, o.isa.lanes
	if wide < lanes || nk < 32 {
		clear(o.side)
	}
	for k := 0; k < nk; k += group {
		p, m, n := r.partAt(k0+k, min(group, nk-k))
		if m%group == 0 {
			for j := 0; j < wide; j += 32 {
				chunk := p.chunk(m/lanes*lanes, m0+j)
				s.tile(&chunk[m%lanes], 4*lanes, &o.sideWords()[(k*lanes+j)/2], 2*lanes)
			}
		} else {
			n = 0
		}
		// Where a part does not end with a tile, the rest of the tile is the next part's.
		for i := n; i < min(group, nk-k); i++ {
			p, m, _ := r.partAt(k0+k+i, 1)
			for j := range wide {
				o.side[(k+i)*lanes+j] = uint16(p.at(m, m0+j))
			}
		}
	}
	return o.side, lanes
}

// partAt is the part that row k of the columns is in, which of its rows that is, and how many of the next n rows it has.
func (r *Right) partAt(k, n int) (p *Packed, m, rows int) {
	for _, p = range r.packed {
		if k < p.m {
			return p, k, min(n, p.m-k)
		}
		k -= p.m
	}
	panic("tcdot: a row beyond the matrix")
}
