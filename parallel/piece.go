// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
)

// piece is some columns of one of the caller's gradients, which have memory of their own while a stream runs.
type piece struct {
	whole   backend.Buffer // [rows,n], the caller's
	part    backend.Buffer // [rows,columns], below
	rows, n int
	columns contract.Range
}

func (w *work) newPiece(whole backend.Buffer, rows, n int, columns contract.Range) piece {
	return piece{whole: whole, part: w.alloc(whole.Dtype(), rows*columns.Len()), rows: rows, n: n, columns: columns}
}

// read begins a stream with the caller's FP32 values, and gives the checksum of them all.
func (p *piece) read(w *work) uint32 {
	whole := get[float32](w, w.of(p.whole), p.rows*p.n)
	put(w, p.part, columnsOf(whole, p.n, p.columns))
	return sum(whole)
}

// write ends a stream: the columns go to their place among the caller's.
func (p *piece) write(w *work) {
	if p.part.Dtype() == backend.FP32 {
		writeColumns[float32](w, p)
	} else {
		writeColumns[BF16](w, p)
	}
}

func writeColumns[T any](w *work, p *piece) {
	all := get[T](w, w.of(p.whole), p.rows*p.n)
	setColumns(all, p.n, p.columns, get[T](w, p.part, p.part.Len()))
	put(w, w.of(p.whole), all)
}

// gather ends a stream where every rank of the group has some columns: all get the whole.
func (p *piece) gather(w *work, g Group, of []contract.Range) {
	if p.part.Dtype() == backend.FP32 {
		gatherPiece[float32](w, p, g, of)
	} else {
		gatherPiece[BF16](w, p, g, of)
	}
}

func gatherPiece[T any](w *work, p *piece, g Group, of []contract.Range) {
	mine := get[T](w, p.part, p.part.Len())
	var all []T
	w.run(func() (err error) {
		all, err = gatherColumns(g, mine, of, p.rows, p.n)
		return err
	})
	put(w, w.of(p.whole), all)
}
