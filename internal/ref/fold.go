// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package ref

import (
	"slices"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// fold keeps the contract's own folds over the caller's accumulators.
type fold struct {
	l *layer
	g contract.Gradients
}

// NewFold starts a stream.
func (l *layer) NewFold(g *backend.Gradients) (backend.Fold, error) {
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

// Flush finishes the folds.
func (f *fold) Flush() error {
	f.g.Flush()
	return nil
}

func (*fold) Close() error { return nil }
