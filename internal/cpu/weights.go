// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"
	"unsafe"

	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/cpu/tcdot"
	"github.com/samebit/samebit/internal/host"
)

// matrix is one weight matrix [M,K], of the layer's own: packed for the vectors or, where Go's kernels run, as it was.
type matrix struct {
	w      []contract.BF16
	k, top int
	packed *tcdot.Packed
}

// rows is the right operand of x times the matrix's transpose.
func (m matrix) rows() tcdot.Right {
	if m.packed != nil {
		return m.packed.Rows()
	}
	return tcdot.Rows(m.w, m.k, m.top)
}

// columns is the right operand of x times the matrices, one below the other.
func columns(parts ...matrix) tcdot.Right {
	var packed []*tcdot.Packed
	var plain [][]contract.BF16
	top := 0
	for _, m := range parts {
		packed, plain, top = append(packed, m.packed), append(plain, m.w), max(top, m.top)
	}
	if packed[0] != nil {
		return tcdot.PackedColumns(packed...)
	}
	return tcdot.Columns(parts[0].k, top, plain...)
}

// weights are the layer's matrices, as the kernels read them.
type weights struct {
	router matrix
	groups []struct{ gate, up, down matrix } // E+1
	data   []uint32                          // of all matrices
	free   func()

	routerRows, sharedGate []contract.BF16 // as they were given: [E,H], [H]
}

// allocate makes room for the weights.
func (l *layer) allocate() (err error) {
	l.weights.groups = make([]struct{ gate, up, down matrix }, l.Experts+1)
	data, free, err := host.Pages(4 * (l.matrixWords(l.Experts, l.Hidden) + l.Experts*l.words(l.Width) + l.words(l.SharedWidth)))
	l.weights.free = free
	l.weights.data = unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4)
	return err
}

// words is how many words an expert's matrices take.
func (l *layer) words(width int) int {
	return 2*l.matrixWords(width, l.Hidden) + l.matrixWords(l.Hidden, width)
}

// matrixWords is how many words a matrix [m,k] takes, packed or not.
func (l *layer) matrixWords(m, k int) int {
	if n := l.isa.Words(m, k); n > 0 {
		return n
	}
	return (m*k + 1) / 2
}

// Refresh copies the weights, which may have changed in place, and refuses those that are not finite (R13). What the caller
// does to its memory afterwards changes nothing, nor does what others do to a file that is mapped there.
func (l *layer) Refresh() error {
	router := l.matrixWords(l.Experts, l.Hidden)
	l.weights.routerRows, l.weights.sharedGate = slices.Clone(l.w.Router), slices.Clone(l.w.SharedGate)
	if l.copied != nil {
		l.copied(l.w.SharedGate)
	}
	groups := l.Experts
	if l.w.Shared != nil {
		groups++
	}
	l.each(func(w *worker) {
		if w.index == 0 {
			l.weights.router = l.matrix(w, l.weights.routerRows, l.Hidden, l.weights.data)
		}
		from, to := l.share(w.index, groups)
		for e := from; e < to; e++ {
			if l.width(e) == 0 {
				continue
			}
			x, g := l.expert(e), &l.weights.groups[e]
			data := l.weights.data[router+e*l.words(l.Width):]
			projection := l.matrixWords(l.width(e), l.Hidden)
			g.gate = l.matrix(w, x.Gate, l.Hidden, data)
			g.up = l.matrix(w, x.Up, l.Hidden, data[projection:])
			g.down = l.matrix(w, x.Down, l.width(e), data[2*projection:])
		}
	})
	top := l.weights.router.top
	for _, g := range l.weights.groups {
		top = max(top, g.gate.top, g.up.top, g.down.top)
	}
	if top == tcdot.NotFinite || tcdot.Top(l.weights.sharedGate) == tcdot.NotFinite {
		return l.w.CheckFinite()
	}
	return nil
}

// matrix readies w [M,K] at the front of data.
func (l *layer) matrix(o *worker, w []contract.BF16, k int, data []uint32) matrix {
	m := matrix{k: k}
	if l.isa.Words(len(w)/k, k) > 0 {
		m.packed = o.Pack(w, k, data)
		m.top = m.packed.Top()
	} else {
		m.w = unsafe.Slice((*contract.BF16)(unsafe.Pointer(unsafe.SliceData(data))), len(w))
		copy(m.w, w)
		m.top = tcdot.Top(m.w)
	}
	if l.copied != nil {
		l.copied(w)
	}
	return m
}
