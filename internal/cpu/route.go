// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"math"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/cpu/tcdot"
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
	l.each(func(w *worker) {
		from, to := l.share(w.index, a.Tokens)
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
				l.SelectTop(ids, logits)
			}
			l.routeWeights(w, weights, logits, ids)
		}
	})
	return nil
}

// logits is R2: one product, of which the shared gate is one more row.
func (l *layer) logits(a backend.Route) {
	x, logits, z := host.BF16(a.X), host.FP32(a.Logits), host.FP32(a.Z)
	router := l.weights.router.rows()
	l.each(func(w *worker) {
		// Whole panels of experts for each worker.
		first, last := l.share(w.index, blocks(l.Experts))
		from, to := min(first*block, l.Experts), min(last*block, l.Experts)
		chunks(a.Tokens, func(t0, t1 int) {
			w.set(rowsOf(x[t0*l.Hidden:t1*l.Hidden], l.Hidden))
			w.Dot(logits[t0*l.Experts+from:], l.Experts, &w.left, router, from, to, contract.LogitSegment)
		})
		if l.bf16Logits {
			for t := range a.Tokens {
				roundLogits(row(logits, t, l.Experts)[from:to])
			}
		}
		if t0, t1 := l.share(w.index, a.Tokens); z != nil && t0 < t1 {
			// Here the tokens fill the lanes, since a product does not mind which operand is which.
			tokens := x[t0*l.Hidden : t1*l.Hidden]
			w.set([][]contract.BF16{l.weights.sharedGate})
			w.Dot(z[t0:t1], t1-t0, &w.left, tcdot.Rows(tokens, l.Hidden, tcdot.Top(tokens)), 0, t1-t0, contract.LogitSegment)
			if l.bf16Logits {
				roundLogits(z[t0:t1])
			}
		}
	})
}

// roundLogits rounds to BF16; a NaN keeps its FP32 bits (R0).
func roundLogits(l []float32) {
	for i, v := range l {
		if v == v {
			l[i] = contract.Round(v).Float32()
		}
	}
}

// routeWeights is R4.
func (l *layer) routeWeights(w *worker, weights, logits []float32, ids []int32) {
	if !l.NormTopK {
		p := w.float(0, l.Experts)
		l.softmax(p, logits)
		for k, e := range ids {
			weights[k] = p[e]
		}
		return
	}
	selected := w.float(0, l.TopK)
	for k, e := range ids {
		selected[k] = logits[e]
	}
	l.softmax(weights, selected)
}

// softmax is contract.Softmax into p.
func (l *layer) softmax(p, logits []float32) {
	largest := float32(math.Inf(-1))
	for _, v := range logits {
		largest = max(largest, v)
	}
	l.ExpShift(p, logits, largest)
	sum := l.Tree(p)
	for i := range p {
		p[i] /= sum
	}
}

// RouteBackward is R10.
func (l *layer) RouteBackward(a backend.RouteBackward) error {
	rows, dweight, logits, weights := host.I32(a.Rows.Row), host.FP32(a.DWeight), host.FP32(a.Logits), host.FP32(a.Weights)
	ids, z, dlogits, dz := host.I32(a.IDs), host.FP32(a.Z), host.FP32(a.DLogits), host.FP32(a.DZ)
	l.each(func(w *worker) {
		dw := make([]float32, l.TopK)
		from, to := l.share(w.index, a.Rows.Tokens)
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
				p = w.float(0, l.Experts)
				l.softmax(p, row(logits, t, l.Experts))
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
