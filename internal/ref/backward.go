// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package ref

import (
	"slices"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// ExpertsBackward is R8.
func (l *layer) ExpertsBackward(a backend.ExpertsBackward) error {
	dy, weight, dweight := host.BF16(a.DY), host.FP32(a.Weight), host.FP32(a.DWeight)
	r, forward := l.rows(a.Rows), l.rows(a.Forward)
	r.each(func(e, i, at int) {
		t := int(r.token[i])
		from := int(forward.rows[t*(r.slots+1)+int(r.slot[i])])
		if e == l.Experts {
			from -= int(forward.offsets[e])
		}
		act, grad, n := of(l, e, a.Routed, a.Shared), of(l, e, a.RoutedGrad, a.SharedGrad), l.width(e)
		out := l.expert(e).Backward(row(dy, t, l.Hidden), row(host.FP32(act.G), from, n), row(host.FP32(act.U), from, n), weight[i])
		copy(row(host.BF16(grad.DGate), at, n), out.DGate)
		copy(row(host.BF16(grad.DUp), at, n), out.DUp)
		copy(row(host.BF16(grad.HW), at, n), out.HW)
		dweight[i] = out.DWeight
	})
	return nil
}

// RowsBackward is R9 up to each row's part of dx.
func (l *layer) RowsBackward(a backend.RowsBackward) error {
	out := host.BF16(a.Out)
	l.rows(a.Rows).each(func(e, i, at int) {
		grad, n := of(l, e, a.RoutedGrad, a.SharedGrad), l.width(e)
		dg, du := row(host.BF16(grad.DGate), at, n), row(host.BF16(grad.DUp), at, n)
		copy(row(out, i, l.Hidden), l.expert(e).InputRow(dg, du))
	})
	return nil
}

// InputGradient is R9's sum.
func (l *layer) InputGradient(a backend.InputGradient) error {
	r := l.rows(a.Rows)
	in, ids, dx := host.BF16(a.In), host.I32(a.IDs), host.BF16(a.DX)
	for t := range a.Rows.Tokens {
		dx := row(dx, t, l.Hidden)
		if r.rows[t*(r.slots+1)] < 0 {
			clear(dx)
			continue
		}
		// Rows are sorted by expert, so a token's rows in ascending order are its experts in ascending order.
		of := slices.Clone(row(r.rows, t, r.slots+1))
		slices.Sort(of)
		var rows [][]contract.BF16
		for _, i := range of {
			if i >= 0 {
				rows = append(rows, row(in, int(i), l.Hidden))
			}
		}
		copy(dx, contract.InputGradient(l.Hidden, rows, l.scaled(t, ids, a.DLogits, a.DZ)))
	}
	return nil
}

// scaled is the router's rows that token t's gradient takes, in ascending expert id, the shared gate last.
func (l *layer) scaled(t int, ids []int32, dlogits, dz backend.Buffer) []contract.Scaled {
	var s []contract.Scaled
	dl := host.FP32(dlogits)
	for e := range l.Experts {
		w := row(l.w.Router, e, l.Hidden)
		if !l.NormTopK {
			s = append(s, contract.Scaled{By: dl[t*l.Experts+e], Row: w})
		} else if k := slices.Index(row(ids, t, l.TopK), int32(e)); k >= 0 {
			s = append(s, contract.Scaled{By: dl[t*l.TopK+k], Row: w})
		}
	}
	if l.w.Shared != nil {
		s = append(s, contract.Scaled{By: host.FP32(dz)[t], Row: l.w.SharedGate})
	}
	return s
}
