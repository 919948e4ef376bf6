// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// Route is R2, R3, R4 and R13.
func (l *layer) Route(a backend.Route) error {
	if a.Tokens == 0 {
		return nil
	}
	l.logits(a)
	replay, logits, z := host.I32(a.Replay), host.FP32(a.Logits), host.FP32(a.Z)
	status, ids, weights := host.I32(a.Status), host.I32(a.IDs), host.FP32(a.Weights)
	l.each(func(w int) {
		from, to := l.share(w, a.Tokens)
		for t := from; t < to; t++ {
			var again []int32
			if replay != nil {
				again = row(replay, t, l.TopK)
			}
			var gate float32
			if z != nil {
				gate = z[t]
			}
			logits, ids, weights := row(logits, t, l.Experts), row(ids, t, l.TopK), row(weights, t, l.TopK)
			s := contract.TokenStatus(logits, gate, again)
			status[t] = int32(s)
			switch {
			case s != contract.Live:
				for k := range ids {
					ids[k] = -1
				}
				clear(weights)
				continue
			case again != nil:
				copy(ids, again)
			default:
				selectTop(ids, logits)
			}
			copy(weights, contract.RouteWeights(logits, ids, l.NormTopK))
		}
	})
	return nil
}

// logits is R2: one product, of which the shared gate is one more row.
func (l *layer) logits(a backend.Route) {
	x, w := rowsOf(host.BF16(a.X), l.Hidden), rowsOf(l.w.Router, l.Hidden)
	logits, z := host.FP32(a.Logits), host.FP32(a.Z)
	l.each(func(worker int) {
		from, to := l.share(worker, l.Experts)
		if from < to {
			l.kernels.nt(logits[from:], l.Experts, x, w[from:to], contract.LogitSegment)
		}
		if z != nil && worker == 0 {
			l.kernels.nt(z, 1, x, [][]contract.BF16{l.w.SharedGate}, contract.LogitSegment)
		}
		if l.bf16Logits {
			for t := range a.Tokens {
				roundLogits(row(logits, t, l.Experts)[from:to])
			}
			if z != nil && worker == 0 {
				roundLogits(z)
			}
		}
	})
}

func roundLogits(l []float32) {
	for i, v := range l {
		l[i] = 0
		accumulate(&l[i], contract.Round(v).Float32()) // so that a NaN keeps its FP32 bits
	}
}

// selectTop is R3 by insertion: a later expert goes before an earlier one only if its logit is greater.
func selectTop(ids []int32, logits []float32) {
	n := 0
	for e, v := range logits {
		if n == len(ids) && !(v > logits[ids[n-1]]) {
			continue
		}
		if n < len(ids) {
			n++
		}
		at := n - 1
		for ; at > 0 && v > logits[ids[at-1]]; at-- {
			ids[at] = ids[at-1]
		}
		ids[at] = int32(e)
	}
}

// RouteBackward is R10.
func (l *layer) RouteBackward(a backend.RouteBackward) error {
	rows, dweight, logits, weights := host.I32(a.Rows.Row), host.FP32(a.DWeight), host.FP32(a.Logits), host.FP32(a.Weights)
	ids, z, dlogits, dz := host.I32(a.IDs), host.FP32(a.Z), host.FP32(a.DLogits), host.FP32(a.DZ)
	l.each(func(w int) {
		dw := make([]float32, l.TopK)
		from, to := l.share(w, a.Rows.Tokens)
		for t := from; t < to; t++ {
			of := row(rows, t, l.TopK+1)
			if of[0] < 0 {
				continue
			}
			for k := range dw {
				dw[k] = dweight[of[k]]
			}
			var p []float32
			if !l.NormTopK {
				p = contract.Softmax(row(logits, t, l.Experts))
			}
			dl := contract.RouteGradient(row(weights, t, l.TopK), dw, row(ids, t, l.TopK), p, l.NormTopK)
			copy(row(dlogits, t, len(dl)), dl)
			if z != nil {
				dz[t] = contract.SharedGateGradient(z[t], dweight[of[l.TopK]])
			}
		}
	})
	return nil
}
