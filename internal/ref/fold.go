// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package ref

import (
	"slices"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// fold keeps the contract's own folds, over the caller's accumulators or, for BF16, over some of its own.
type fold struct {
	l    *layer
	g    contract.Gradients
	bf16 *backend.Gradients // nil for FP32
}

// NewFold starts a stream.
func (l *layer) NewFold(g *backend.Gradients) (backend.Fold, error) {
	if g.Router.Dtype() == backend.BF16 {
		return &fold{l: l, g: *l.NewGradients(), bf16: g}, nil
	}
	f := &fold{l: l, g: contract.Gradients{Router: host.FP32(g.Router), SharedGate: host.FP32(g.SharedGate)}}
	for _, e := range g.Experts {
		f.g.Experts = append(f.g.Experts, expertGradient(e))
	}
	if g.Shared != nil {
		shared := expertGradient(*g.Shared)
		f.g.Shared = &shared
	}
	return f, nil
}

func expertGradient(e backend.ExpertGradient) contract.ExpertGradient {
	return contract.ExpertGradient{Gate: host.FP32(e.Gate), Up: host.FP32(e.Up), Down: host.FP32(e.Down)}
}

// Add is R10's sums and R11.
func (f *fold) Add(a backend.FoldArgs) error {
	l, x, dy, ids := f.l, host.BF16(a.X), host.BF16(a.DY), host.I32(a.IDs)
	r := l.rows(a.Rows)
	r.each(func(e, i, at int) {
		grad, n, t := of(l, e, a.RoutedGrad, a.SharedGrad), l.width(e), int(r.token[i])
		into := f.g.Shared
		if e < l.Experts {
			into = &f.g.Experts[e]
		}
		// Cloned, since a row may wait for a later call.
		into.Add(slices.Clone(row(x, t, l.Hidden)), slices.Clone(row(dy, t, l.Hidden)), contract.RowGradient{
			DGate: slices.Clone(row(host.BF16(grad.DGate), at, n)),
			DUp:   slices.Clone(row(host.BF16(grad.DUp), at, n)),
			HW:    slices.Clone(row(host.BF16(grad.HW), at, n)),
		})
	})
	for t := range a.Rows.Tokens {
		if r.rows[t*(r.slots+1)] < 0 {
			continue
		}
		x := row(x, t, l.Hidden)
		if l.NormTopK {
			for k, e := range row(ids, t, l.TopK) {
				contract.FoldRouter(row(f.g.Router, int(e), l.Hidden), host.FP32(a.DLogits)[t*l.TopK+k], x)
			}
		} else {
			for e := range l.Experts {
				contract.FoldRouter(row(f.g.Router, e, l.Hidden), host.FP32(a.DLogits)[t*l.Experts+e], x)
			}
		}
		if f.g.Shared != nil {
			contract.FoldRouter(f.g.SharedGate, host.FP32(a.DZ)[t], x)
		}
	}
	return nil
}

// Flush finishes the folds, and casts them where BF16 is asked for.
func (f *fold) Flush() error {
	f.g.Flush()
	if f.bf16 == nil {
		return nil
	}
	round(f.bf16.Router, f.g.Router)
	round(f.bf16.SharedGate, f.g.SharedGate)
	expert := func(to *backend.ExpertGradient, from *contract.ExpertGradient) {
		round(to.Gate, from.Gate)
		round(to.Up, from.Up)
		round(to.Down, from.Down)
	}
	for e := range f.g.Experts {
		expert(&f.bf16.Experts[e], &f.g.Experts[e])
	}
	if f.g.Shared != nil {
		expert(f.bf16.Shared, f.g.Shared)
	}
	return nil
}

// round casts accumulators, which begin anew.
func round(dst backend.Buffer, src []float32) {
	to := host.BF16(dst)
	for i, v := range src {
		to[i] = contract.Round(v)
	}
	clear(src)
}

func (*fold) Close() error { return nil }
