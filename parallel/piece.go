// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
)

// block is some columns of some rows of a matrix.
type block struct{ rows, columns contract.Range }

func (b block) size() int { return b.rows.Len() * b.columns.Len() }

// blockOf is a block of a matrix of n columns: the matrix's own memory where it is whole rows.
func blockOf[T any](m []T, n int, b block) []T {
	return columnsOf(m[b.rows.From*n:b.rows.To*n], n, b.columns)
}

// setBlock copies to a block of a matrix of n columns.
func setBlock[T any](dst []T, n int, b block, src []T) {
	setColumns(dst[b.rows.From*n:b.rows.To*n], n, b.columns, src)
}

// piece is a block of one of the caller's gradients, which has memory of its own while a stream runs.
type piece struct {
	whole   backend.Buffer // [rows,n], the caller's
	part    backend.Buffer // the block, below
	rows, n int
	block   block
}

func (w *work) newPiece(whole backend.Buffer, rows, n int, b block) piece {
	return piece{whole: whole, part: w.alloc(whole.Dtype(), b.size()), rows: rows, n: n, block: b}
}

// read begins a stream with the caller's FP32 values, and gives the checksum of them all.
func (p *piece) read(w *work) uint32 {
	whole := get[float32](w, w.of(p.whole), p.rows*p.n)
	put(w, p.part, blockOf(whole, p.n, p.block))
	return sum(whole)
}

// write ends a stream: the block goes to its place among the caller's.
func (p *piece) write(w *work) {
	if p.part.Dtype() == backend.FP32 {
		writeBlock[float32](w, p)
	} else {
		writeBlock[BF16](w, p)
	}
}

func writeBlock[T any](w *work, p *piece) {
	all := get[T](w, w.of(p.whole), p.rows*p.n)
	setBlock(all, p.n, p.block, get[T](w, p.part, p.part.Len()))
	put(w, w.of(p.whole), all)
}

// gather ends a stream where every rank of the group has a block, of which some may be empty: all get the whole.
func (p *piece) gather(w *work, g Group, of []block) {
	if p.part.Dtype() == backend.FP32 {
		gatherPiece[float32](w, p, g, of)
	} else {
		gatherPiece[BF16](w, p, g, of)
	}
}

func gatherPiece[T any](w *work, p *piece, g Group, of []block) {
	var mine []T
	if of[g.Rank()].size() > 0 {
		mine = get[T](w, p.part, p.part.Len())
	}
	counts := make([]int, len(of))
	for r := range of {
		counts[r] = of[r].size()
	}
	whole := make([]T, p.rows*p.n)
	w.run(func() error {
		parts, err := allGather(g, mine, counts)
		for r, part := range parts {
			setBlock(whole, p.n, of[r], part)
		}
		return err
	})
	put(w, w.of(p.whole), whole)
}
