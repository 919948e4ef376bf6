// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/cpu/tcdot"
	"github.com/samebit/samebit/internal/host"
)

// GateUp is R6 up to h.
func (l *layer) GateUp(a backend.GateUp) error {
	p, x := view(a.Rows), host.BF16(a.X)
	l.perGroup(l.width, l.output(p), func(w *worker, t task) {
		width, n := l.width(t.group), t.to-t.from
		act := of(l, t.group, a.Routed, a.Shared)
		gs, us, hs := host.FP32(act.G), host.FP32(act.U), host.BF16(act.H)
		first := l.first(p, t.group)
		chunks(p.rows(t.group), func(from, to int) {
			// With a tape, g and u go where it keeps them.
			at, stride := (first+from)*width+t.from, width
			var g, u []float32
			if act.G != nil {
				g, u = gs[at:], us[at:]
			} else {
				g, u, stride = w.float(0, (to-from)*n), w.float(1, (to-from)*n), n
			}
			w.set(w.gather(p, t.group, from, to, x, l.Hidden))
			w.dot(g, stride, l.weights.groups[t.group].gate.rows(), t.from, t.to)
			w.dot(u, stride, l.weights.groups[t.group].up.rows(), t.from, t.to)
			for i := range to - from {
				l.SwiGLU(hs[at+i*width:][:n], g[i*stride:][:n], u[i*stride:][:n])
			}
		})
	})
	return nil
}

// Down is R6 from h.
func (l *layer) Down(a backend.Down) error {
	p, out := view(a.Rows), host.BF16(a.Out)
	output := l.output(p)
	l.perGroup(l.hidden, func(e int) int { return output(e) * l.width(e) }, func(w *worker, t task) {
		h := l.rows(p, t.group, of(l, t.group, a.Routed, a.Shared).H)
		chunks(len(h), func(from, to int) {
			w.set(h[from:to])
			l.rounded(w, out, int(p.offsets[t.group])+from, to-from, t, l.weights.groups[t.group].down.rows())
		})
	})
	return nil
}

// output is what one output of a group costs.
func (l *layer) output(p plan) func(e int) int {
	return func(e int) int { return l.isa.RowsCost(p.rows(e)) }
}

// rows are group e's rows of a buffer of its width.
func (l *layer) rows(p plan, e int, b backend.Buffer) [][]contract.BF16 {
	width, first := l.width(e), l.first(p, e)
	return rowsOf(host.BF16(b)[first*width:(first+p.rows(e))*width], width)
}

// rounded is a task's columns of n rows of out [R,H], of which the first is row at: the worker's left operand times r, cast.
func (l *layer) rounded(w *worker, out []contract.BF16, at, n int, t task, r tcdot.Right) {
	columns := t.to - t.from
	f := w.float(0, n*columns)
	w.dot(f, columns, r, t.from, t.to)
	for i := range n {
		l.Round(row(out, at+i, l.Hidden)[t.from:t.to], row(f, i, columns))
	}
}

// Combine is R7; a token without work gives +0, a rejected one NaN.
func (l *layer) Combine(a backend.Combine) error {
	p := view(a.Rows)
	in, weights, z := host.BF16(a.In), host.FP32(a.Weights), host.FP32(a.Z)
	status, y := host.I32(a.Status), host.BF16(a.Y)
	l.each(func(w *worker) {
		sum := w.float(0, l.Hidden)
		from, to := l.share(w.index, a.Rows.Tokens)
		for t := from; t < to; t++ {
			y := row(y, t, l.Hidden)
			if s := contract.Status(status[t]); s != contract.Live {
				copy(y, contract.Workless(l.Hidden, s))
				continue
			}
			clear(sum)
			of := row(p.row, t, p.slots+1)
			for k, w := range row(weights, t, p.slots) {
				l.AddScaled(sum, w, row(in, int(of[k]), l.Hidden))
			}
			if p.shared {
				l.AddScaled(sum, contract.Sigmoid(z[t]), row(in, int(of[p.slots]), l.Hidden))
			}
			l.Round(y, sum)
		}
	})
	return nil
}
