// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package ref

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// Route is R2, R3, R4 and R13.
func (l *layer) Route(a backend.Route) error {
	x, replay := host.BF16(a.X), host.I32(a.Replay)
	logits, z, status := host.FP32(a.Logits), host.FP32(a.Z), host.I32(a.Status)
	ids, weights := host.I32(a.IDs), host.FP32(a.Weights)
	for t := range a.Tokens {
		x, logits := row(x, t, l.Hidden), row(logits, t, l.Experts)
		for e := range logits {
			logits[e] = contract.Logit(x, row(l.w.Router, e, l.Hidden), l.bf16Logits)
		}
		var gate float32
		if z != nil {
			z[t] = contract.Logit(x, l.w.SharedGate, l.bf16Logits)
			gate = z[t]
		}
		var again []int32
		if replay != nil {
			again = row(replay, t, l.TopK)
		}
		s := contract.TokenStatus(logits, gate, again)
		status[t] = int32(s)
		ids, weights := row(ids, t, l.TopK), row(weights, t, l.TopK)
		if s != contract.Live {
			for k := range ids {
				ids[k] = -1
			}
			clear(weights)
			continue
		}
		if again == nil {
			again = contract.Select(logits, l.TopK)
		}
		copy(ids, again)
		copy(weights, contract.RouteWeights(logits, ids, l.NormTopK))
	}
	return nil
}

// Plan is R5.
func (l *layer) Plan(a backend.Plan) error {
	l.plan(a.Rows, host.I32(a.IDs), func(int) bool { return true })
	return nil
}

// PlanBackward is R5 without the tokens whose dy is all zero, and each row's route weight.
func (l *layer) PlanBackward(a backend.PlanBackward) error {
	dy, weights, z := host.BF16(a.DY), host.FP32(a.Weights), host.FP32(a.Z)
	l.plan(a.Rows, host.I32(a.IDs), func(t int) bool { return !contract.AllZero(row(dy, t, l.Hidden)) })
	r, weight := l.rows(a.Rows), host.FP32(a.Weight)
	r.each(func(e, i, _ int) {
		if t := int(r.token[i]); e == l.Experts {
			weight[i] = contract.Sigmoid(z[t])
		} else {
			weight[i] = weights[t*r.slots+int(r.slot[i])]
		}
	})
	return nil
}

func (l *layer) plan(a backend.Rows, ids []int32, takesPart func(t int) bool) {
	r := l.rows(a)
	for i := range r.rows {
		r.rows[i] = -1
	}
	n := int32(0)
	add := func(t, k int) {
		r.token[n], r.slot[n], r.rows[t*(r.slots+1)+k] = int32(t), int32(k), n
		n++
	}
	var tokens []int
	for t := range a.Tokens {
		if ids[t*r.slots] >= 0 && takesPart(t) {
			tokens = append(tokens, t)
		}
	}
	for e := range l.Experts {
		r.offsets[e] = n
		for _, t := range tokens {
			for k, id := range row(ids, t, r.slots) {
				if int(id) == e {
					add(t, k)
				}
			}
		}
	}
	r.offsets[l.Experts] = n
	if a.Shared {
		for _, t := range tokens {
			add(t, r.slots)
		}
	}
	r.offsets[l.Experts+1] = n
}

// RouteBackward is R10.
func (l *layer) RouteBackward(a backend.RouteBackward) error {
	r := l.rows(a.Rows)
	dweight, logits, weights := host.FP32(a.DWeight), host.FP32(a.Logits), host.FP32(a.Weights)
	ids, z, dlogits, dz := host.I32(a.IDs), host.FP32(a.Z), host.FP32(a.DLogits), host.FP32(a.DZ)
	for t := range a.Rows.Tokens {
		of := row(r.rows, t, l.TopK+1)
		if of[0] < 0 {
			continue
		}
		dw := make([]float32, l.TopK)
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
	return nil
}
