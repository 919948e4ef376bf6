// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/internal/host"
)

// ExpertsBackward is R8: q in blocks of columns, and then, since a tree crosses the blocks, each row's gradient of its
// route weight.
func (l *layer) ExpertsBackward(a backend.ExpertsBackward) error {
	p, forward := view(a.Rows), view(a.Forward)
	dy, weight, dweight := host.BF16(a.DY), host.FP32(a.Weight), host.FP32(a.DWeight)
	// The terms q*h of the trees, laid out as the activations.
	rows, routedRows := int(p.offsets[l.Experts+1]), int(p.offsets[l.Experts])
	routed, shared := make([]float32, routedRows*l.Width), make([]float32, (rows-routedRows)*l.SharedWidth)
	l.perGroup(l.width, p.output, func(w *worker, t task) {
		e, width, n := t.group, l.width(t.group), t.to-t.from
		act, grad, terms := of(l, e, a.Routed, a.Shared), of(l, e, a.RoutedGrad, a.SharedGrad), of(l, e, routed, shared)
		gs, us := host.FP32(act.G), host.FP32(act.U)
		dgs, dus, hws := host.BF16(grad.DGate), host.BF16(grad.DUp), host.BF16(grad.HW)
		chunks(p.rows(e), func(from, to int) {
			q := w.float(0, (to-from)*n)
			w.set(w.gather(p, e, from, to, dy, l.Hidden))
			w.dot(q, n, columns(l.weights.groups[e].down), t.from, t.to)
			for i := range to - from {
				r := int(p.offsets[e]) + from + i
				saved := int(forward.row[int(p.token[r])*(p.slots+1)+int(p.slot[r])]) - int(forward.offsets[e]) + l.first(forward, e)
				s, d := saved*width+t.from, (l.first(p, e)+from+i)*width+t.from
				l.SwiGLUBackward(dgs[d:d+n], dus[d:d+n], hws[d:d+n], terms[d:d+n], gs[s:s+n], us[s:s+n], row(q, i, n), weight[r])
			}
		})
	})
	l.each(func(w *worker) {
		from, to := l.share(w.index, rows)
		for r := from; r < to; r++ {
			if r < routedRows {
				dweight[r] = l.Tree(row(routed, r, l.Width))
			} else {
				dweight[r] = l.Tree(row(shared, r-routedRows, l.SharedWidth))
			}
		}
	})
	return nil
}

// RowsBackward is R9 up to each row's part of dx.
func (l *layer) RowsBackward(a backend.RowsBackward) error {
	p, out := view(a.Rows), host.BF16(a.Out)
	l.perGroup(l.hidden, func(e int) int { return p.output(e) * l.width(e) }, func(w *worker, t task) {
		grad := of(l, t.group, a.RoutedGrad, a.SharedGrad)
		dg, du := l.rows(p, t.group, grad.DGate), l.rows(p, t.group, grad.DUp)
		chunks(len(dg), func(from, to int) {
			w.set(w.joined(dg[from:to], du[from:to]))
			g := &l.weights.groups[t.group]
			l.rounded(w, out, int(p.offsets[t.group])+from, to-from, t, columns(g.gate, g.up))
		})
	})
	return nil
}

// InputGradient is R9's sum.
func (l *layer) InputGradient(a backend.InputGradient) error {
	p := view(a.Rows)
	in, ids, dx := host.BF16(a.In), host.I32(a.IDs), host.BF16(a.DX)
	dlogits, dz := host.FP32(a.DLogits), host.FP32(a.DZ)
	l.each(func(w *worker) {
		sum := w.float(0, l.Hidden)
		from, to := l.share(w.index, a.Rows.Tokens)
		for t := from; t < to; t++ {
			dx, of := row(dx, t, l.Hidden), slices.Clone(row(p.row, t, p.slots+1))
			if of[0] < 0 {
				clear(dx)
				continue
			}
			clear(sum)
			// Rows are sorted by expert, so a token's rows in ascending order are its experts in ascending order.
			slices.Sort(of)
			for _, r := range of {
				if r >= 0 {
					l.AddScaled(sum, 1, row(in, int(r), l.Hidden))
				}
			}
			l.eachLogit(row(ids, t, l.TopK), dlogits, t, func(e int, dl float32) {
				l.AddScaled(sum, dl, row(l.weights.routerRows, e, l.Hidden))
			})
			if p.shared {
				l.AddScaled(sum, dz[t], l.weights.sharedGate)
			}
			l.Round(dx, sum)
		}
	})
	return nil
}

// eachLogit calls do for the logits of token t that have a gradient, in ascending expert id.
func (l *layer) eachLogit(ids []int32, dlogits []float32, t int, do func(e int, dl float32)) {
	if !l.NormTopK {
		for e, dl := range row(dlogits, t, l.Experts) {
			do(e, dl)
		}
		return
	}
	dl := row(dlogits, t, l.TopK)
	ascending := slices.Clone(ids)
	slices.Sort(ascending)
	for _, e := range ascending {
		do(int(e), dl[slices.Index(ids, e)])
	}
}

// output is what one output of group e costs: its rows, and two more for readying the weights.
func (p plan) output(e int) int {
	if n := p.rows(e); n > 0 {
		return n + 2
	}
	return 0
}
