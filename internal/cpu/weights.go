// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"unsafe"

	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/cpu/tcdot"
	"github.com/samebit/samebit/internal/host"
)

// matrix is one weight matrix [M,K]: packed for the vectors or, where Go's kernels run, in memory as it is.
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
	data   []uint32                          // of all packed matrices
	free   func()
}

// notFinite is the top of a matrix with an infinity or a NaN.
const notFinite = 255

// allocate makes room for packed weights.
func (l *layer) allocate() (err error) {
	l.weights.groups = make([]struct{ gate, up, down matrix }, l.Experts+1)
	data, free, err := host.Pages(4 * (l.isa.Words(l.Experts, l.Hidden) + l.Experts*l.words(l.Width) + l.words(l.SharedWidth)))
	l.weights.free = free
	l.weights.data = unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4)
	return err
}

// words is how many words an expert's packed matrices take.
func (l *layer) words(width int) int {
	return 2*l.isa.Words(width, l.Hidden) + l.isa.Words(l.Hidden, width)
}

// Refresh reads the weights, which may have changed in place, and refuses those that are not finite (R13).
func (l *layer) Refresh() error {
	router := l.isa.Words(l.Experts, l.Hidden)
	groups := l.Experts
	if l.w.Shared != nil {
		groups++
	}
	l.each(func(w *worker) {
		if w.index == 0 {
			l.weights.router = l.matrix(w, l.w.Router, l.Hidden, l.weights.data)
		}
		from, to := l.share(w.index, groups)
		for e := from; e < to; e++ {
			x, g := l.expert(e), &l.weights.groups[e]
			data := l.weights.data[router+e*l.words(l.Width):]
			projection := l.isa.Words(l.width(e), l.Hidden)
			g.gate = l.matrix(w, x.Gate, l.Hidden, data)
			g.up = l.matrix(w, x.Up, l.Hidden, data[projection:])
			g.down = l.matrix(w, x.Down, l.width(e), data[2*projection:])
		}
	})
	top := l.weights.router.top
	for _, g := range l.weights.groups {
		top = max(top, g.gate.top, g.up.top, g.down.top)
	}
	if top == notFinite || l.w.Shared != nil && tcdot.Top(l.w.SharedGate) == notFinite {
		return l.w.CheckFinite()
	}
	return nil
}

// matrix readies w [M,K], at the front of data where it is packed.
func (l *layer) matrix(o *worker, w []contract.BF16, k int, data []uint32) matrix {
	if l.isa.Words(len(w)/k, k) == 0 {
		return matrix{w: w, k: k, top: tcdot.Top(w)}
	}
	packed := o.Pack(w, k, data)
	if l.copied != nil {
		l.copied(w)
	}
	return matrix{k: k, top: packed.Top(), packed: packed}
}
