// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// ExpertsBackward is R8: q in blocks of columns, and then, since a tree crosses the blocks, each row's gradient of its
// route weight.
func (l *layer) ExpertsBackward(a backend.ExpertsBackward) error {
	p, forward := view(a.Rows), view(a.Forward)
	dy, weight, dweight := host.BF16(a.DY), host.FP32(a.Weight), host.FP32(a.DWeight)
	// The terms q*h of the trees, laid out as the activations.
	rows := int(p.offsets[l.Experts+1])
	routed, shared := make([]float32, int(p.offsets[l.Experts])*l.Width), make([]float32, p.rows(l.Experts)*l.SharedWidth)
	l.perGroup(p, l.width, l.hidden, func(t task) {
		e, width, n := t.group, l.width(t.group), t.to-t.from
		act, grad, terms := of(l, e, a.Routed, a.Shared), of(l, e, a.RoutedGrad, a.SharedGrad), of(l, e, routed, shared)
		q := make([]float32, p.rows(e)*n)
		l.kernels.nn(q, n, gather(p, e, dy, l.Hidden), rowsOf(l.expert(e).Down, width), t.from, t.to)
		for i := range p.rows(e) {
			r := int(p.offsets[e]) + i
			from := int(forward.row[int(p.token[r])*(p.slots+1)+int(p.slot[r])]) - l.base(forward, e)
			g, u := row(host.FP32(act.G), from, width)[t.from:t.to], row(host.FP32(act.U), from, width)[t.from:t.to]
			at := r - l.base(p, e)
			dg, du := row(host.BF16(grad.DGate), at, width)[t.from:t.to], row(host.BF16(grad.DUp), at, width)[t.from:t.to]
			hw, terms := row(host.BF16(grad.HW), at, width)[t.from:t.to], row(terms, at, width)[t.from:t.to]
			for j, q := range row(q, i, n) {
				h := contract.SwiGLU(g[j], u[j]).Float32()
				terms[j] = float32(q * h)
				hw[j] = contract.Round(h * weight[r])
				dg[j], du[j] = contract.SwiGLUBackward(g[j], u[j], q, weight[r])
			}
		}
	})
	l.each(func(w int) {
		from, to := l.share(w, rows)
		for r := from; r < to; r++ {
			if first := int(p.offsets[l.Experts]); r < first {
				dweight[r] = contract.Tree(row(routed, r, l.Width))
			} else {
				dweight[r] = contract.Tree(row(shared, r-first, l.SharedWidth))
			}
		}
	})
	return nil
}

// RowsBackward is R9 up to each row's part of dx.
func (l *layer) RowsBackward(a backend.RowsBackward) error {
	p := view(a.Rows)
	l.perGroup(p, l.hidden, l.width, func(t task) {
		width, e := l.width(t.group), l.expert(t.group)
		grad := of(l, t.group, a.RoutedGrad, a.SharedGrad)
		from, to := p.span(t.group, l.base(p, t.group), width)
		dg, du := rowsOf(host.BF16(grad.DGate)[from:to], width), rowsOf(host.BF16(grad.DUp)[from:to], width)
		for i := range dg {
			dg[i] = slices.Concat(dg[i], du[i])
		}
		w := slices.Concat(rowsOf(e.Gate, l.Hidden), rowsOf(e.Up, l.Hidden))
		l.rounded(host.BF16(a.Out), p, t, func(out []float32, stride int) {
			l.kernels.nn(out, stride, dg, w, t.from, t.to)
		})
	})
	return nil
}

// InputGradient is R9's sum.
func (l *layer) InputGradient(a backend.InputGradient) error {
	p := view(a.Rows)
	in, ids, dx := host.BF16(a.In), host.I32(a.IDs), host.BF16(a.DX)
	dlogits, dz := host.FP32(a.DLogits), host.FP32(a.DZ)
	l.each(func(w int) {
		sum := make([]float32, l.Hidden)
		from, to := l.share(w, a.Rows.Tokens)
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
					for j, v := range row(in, int(r), l.Hidden) {
						sum[j] += v.Float32()
					}
				}
			}
			l.eachLogit(row(ids, t, l.TopK), dlogits, t, func(e int, dl float32) {
				addScaled(sum, dl, row(l.w.Router, e, l.Hidden))
			})
			if p.shared {
				addScaled(sum, dz[t], l.w.SharedGate)
			}
			round(dx, sum)
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
