// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// fold is R10's sums and R11 over the caller's accumulators. Each group's stream waits in full segments' remainders.
type fold struct {
	l       *layer
	g       *backend.Gradients
	streams []stream // E+1
}

// stream is rows of one group, in token order.
type stream struct {
	x, dy          [][]contract.BF16 // [H] each
	dgate, dup, hw [][]contract.BF16 // [I] each
}

func (s *stream) fields() []*[][]contract.BF16 {
	return []*[][]contract.BF16{&s.x, &s.dy, &s.dgate, &s.dup, &s.hw}
}

// NewFold starts a stream.
func (l *layer) NewFold(g *backend.Gradients) (backend.Fold, error) {
	return &fold{l, g, make([]stream, l.Experts+1)}, nil
}

// accumulators of group e.
func (f *fold) of(e int) backend.ExpertGradient {
	if e == f.l.Experts {
		return *f.g.Shared
	}
	return f.g.Experts[e]
}

// Add puts the rows behind those that wait, folds in all full segments and keeps copies of the rest.
func (f *fold) Add(a backend.FoldArgs) error {
	l, p := f.l, view(a.Rows)
	x, dy := host.BF16(a.X), host.BF16(a.DY)
	for e := range f.streams {
		if p.rows(e) == 0 {
			continue
		}
		s, width, grad := &f.streams[e], l.width(e), of(l, e, a.RoutedGrad, a.SharedGrad)
		from, to := p.span(e, l.base(p, e), width)
		s.x = append(s.x, gather(p, e, x, l.Hidden)...)
		s.dy = append(s.dy, gather(p, e, dy, l.Hidden)...)
		s.dgate = append(s.dgate, rowsOf(host.BF16(grad.DGate)[from:to], width)...)
		s.dup = append(s.dup, rowsOf(host.BF16(grad.DUp)[from:to], width)...)
		s.hw = append(s.hw, rowsOf(host.BF16(grad.HW)[from:to], width)...)
	}
	f.fold(func(e int) int { return len(f.streams[e].x) / contract.FoldSegment * contract.FoldSegment })
	for e := range f.streams {
		if p.rows(e) > 0 {
			f.streams[e].own()
		}
	}
	f.router(a)
	return nil
}

// own copies the rows, which lie in buffers that the next call will use again.
func (s *stream) own() {
	for _, field := range s.fields() {
		for i, r := range *field {
			(*field)[i] = slices.Clone(r)
		}
	}
}

// Flush folds in what waits.
func (f *fold) Flush() error {
	f.fold(func(e int) int { return len(f.streams[e].x) })
	return nil
}

func (*fold) Close() error { return nil }

// fold takes the first rows(e) rows of each group's stream into the accumulators, and drops them.
func (f *fold) fold(rows func(e int) int) {
	l := f.l
	// A task is a block of the experts' width: rows of gate's and up's gradients; then a block of H: rows of down's.
	run := func(columns func(e int) int, do func(t task, s stream, from, to int)) {
		tasks := partition(l.workers, l.Experts+1, columns, rows)
		l.each(func(w int) {
			for _, t := range tasks[w] {
				for from := 0; from < rows(t.group); from += contract.FoldSegment {
					do(t, f.streams[t.group], from, min(from+contract.FoldSegment, rows(t.group)))
				}
			}
		})
	}
	run(l.width, func(t task, s stream, from, to int) {
		g := f.of(t.group)
		l.kernels.fold(host.FP32(g.Gate), l.Hidden, s.dgate[from:to], t.from, t.to, s.x[from:to])
		l.kernels.fold(host.FP32(g.Up), l.Hidden, s.dup[from:to], t.from, t.to, s.x[from:to])
	})
	run(l.hidden, func(t task, s stream, from, to int) {
		l.kernels.fold(host.FP32(f.of(t.group).Down), l.width(t.group), s.dy[from:to], t.from, t.to, s.hw[from:to])
	})
	for e := range f.streams {
		n := rows(e)
		for _, field := range f.streams[e].fields() {
			*field = slices.Clone((*field)[n:])
		}
	}
}

// router is R10's sums: every worker takes some columns of all tokens.
func (f *fold) router(a backend.FoldArgs) {
	l, p := f.l, view(a.Rows)
	x, ids, dlogits, dz := host.BF16(a.X), host.I32(a.IDs), host.FP32(a.DLogits), host.FP32(a.DZ)
	router, shared := host.FP32(f.g.Router), host.FP32(f.g.SharedGate)
	l.each(func(w int) {
		from, to := l.share(w, l.Hidden)
		for t := range a.Rows.Tokens {
			if p.row[t*(p.slots+1)] < 0 {
				continue
			}
			x := row(x, t, l.Hidden)[from:to]
			l.eachLogit(row(ids, t, l.TopK), dlogits, t, func(e int, dl float32) {
				contract.FoldRouter(row(router, e, l.Hidden)[from:to], dl, x)
			})
			if p.shared {
				contract.FoldRouter(shared[from:to], dz[t], x)
			}
		}
	})
}
