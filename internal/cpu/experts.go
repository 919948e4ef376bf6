// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// perGroup runs do over the groups' columns, partitioned over the workers by rows times depth.
func (l *layer) perGroup(p plan, columns, depth func(e int) int, do func(t task)) {
	tasks := partition(l.workers, l.Experts+1, columns, func(e int) int { return p.rows(e) * depth(e) })
	l.each(func(w int) {
		for _, t := range tasks[w] {
			do(t)
		}
	})
}

func (l *layer) hidden(int) int { return l.Hidden }

// GateUp is R6 up to h.
func (l *layer) GateUp(a backend.GateUp) error {
	p, x := view(a.Rows), host.BF16(a.X)
	l.perGroup(p, l.width, l.hidden, func(t task) {
		e, width, n := l.expert(t.group), l.width(t.group), t.to-t.from
		rows := gather(p, t.group, x, l.Hidden)
		act := of(l, t.group, a.Routed, a.Shared)
		g, u := make([]float32, len(rows)*n), make([]float32, len(rows)*n)
		l.kernels.nt(g, n, rows, rowsOf(e.Gate, l.Hidden)[t.from:t.to], 0)
		l.kernels.nt(u, n, rows, rowsOf(e.Up, l.Hidden)[t.from:t.to], 0)
		from, _ := p.span(t.group, l.base(p, t.group), width)
		for i := range rows {
			at := from + i*width
			g, u, h := row(g, i, n), row(u, i, n), host.BF16(act.H)[at+t.from:at+t.to]
			for j := range h {
				h[j] = contract.SwiGLU(g[j], u[j])
			}
			if act.G != nil {
				copy(host.FP32(act.G)[at+t.from:], g)
				copy(host.FP32(act.U)[at+t.from:], u)
			}
		}
	})
	return nil
}

// Down is R6 from h.
func (l *layer) Down(a backend.Down) error {
	p := view(a.Rows)
	l.perGroup(p, l.hidden, l.width, func(t task) {
		width := l.width(t.group)
		from, to := p.span(t.group, l.base(p, t.group), width)
		h := rowsOf(host.BF16(of(l, t.group, a.Routed, a.Shared).H)[from:to], width)
		l.rounded(host.BF16(a.Out), p, t, func(out []float32, stride int) {
			l.kernels.nt(out, stride, h, rowsOf(l.expert(t.group).Down, width)[t.from:t.to], 0)
		})
	})
	return nil
}

// rounded has product make a task's block of the rows' outputs [R,H] in FP32, and casts it.
func (l *layer) rounded(out []contract.BF16, p plan, t task, product func(out []float32, stride int)) {
	n, rows := t.to-t.from, p.rows(t.group)
	block := make([]float32, rows*n)
	product(block, n)
	for i := range rows {
		to := row(out, int(p.offsets[t.group])+i, l.Hidden)[t.from:t.to]
		for j, v := range row(block, i, n) {
			to[j] = contract.Round(v)
		}
	}
}

// Combine is R7; a token without work gives +0, a rejected one NaN.
func (l *layer) Combine(a backend.Combine) error {
	p := view(a.Rows)
	in, weights, z := host.BF16(a.In), host.FP32(a.Weights), host.FP32(a.Z)
	status, y := host.I32(a.Status), host.BF16(a.Y)
	l.each(func(w int) {
		sum := make([]float32, l.Hidden)
		from, to := l.share(w, a.Rows.Tokens)
		for t := from; t < to; t++ {
			y := row(y, t, l.Hidden)
			if s := contract.Status(status[t]); s != contract.Live {
				copy(y, contract.Workless(l.Hidden, s))
				continue
			}
			clear(sum)
			of := row(p.row, t, p.slots+1)
			for k, w := range row(weights, t, p.slots) {
				addScaled(sum, w, row(in, int(of[k]), l.Hidden))
			}
			if p.shared {
				addScaled(sum, contract.Sigmoid(z[t]), row(in, int(of[p.slots]), l.Hidden))
			}
			round(y, sum)
		}
	})
	return nil
}

// addScaled adds by times v, product and sum each rounded to nearest even.
func addScaled(sum []float32, by float32, v []contract.BF16) {
	for j, b := range v {
		sum[j] += float32(by * b.Float32())
	}
}

func round(dst []contract.BF16, src []float32) {
	for j, v := range src {
		dst[j] = contract.Round(v)
	}
}
