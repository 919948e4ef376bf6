// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// fold is R10's sums and R11 over the caller's accumulators. What does not fill a segment waits in its group's stream.
type fold struct {
	l       *layer
	g       *backend.Gradients
	streams []stream // E+1
}

// stream is rows of one group, in token order: those that wait, which lie in the stream's own memory, and behind them, while
// they are added, a call's.
type stream struct {
	x, dy          [][]contract.BF16 // [H] each
	dgate, dup, hw [][]contract.BF16 // [I] each
	waiting        int
	own            [5][]contract.BF16 // a segment of each of the fields
}

func (s *stream) fields() [5]*[][]contract.BF16 {
	return [...]*[][]contract.BF16{&s.x, &s.dy, &s.dgate, &s.dup, &s.hw}
}

// drop leaves out the first n rows, and keeps the rest, fewer than a segment, for later.
func (s *stream) drop(n int) {
	for i, field := range s.fields() {
		rest := (*field)[n:]
		for j, r := range rest {
			if s.own[i] == nil {
				s.own[i] = make([]contract.BF16, contract.FoldSegment*len(r))
			}
			if mine := row(s.own[i], j, len(r)); n > 0 || j >= s.waiting {
				copy(mine, r)
				rest[j] = mine
			}
		}
		*field = append((*field)[:0], rest...)
	}
	s.waiting = len(s.x)
}

// NewFold starts a stream.
func (l *layer) NewFold(g *backend.Gradients) (backend.Fold, error) {
	return &fold{l, g, make([]stream, l.Experts+1)}, nil
}

// of is the accumulators of group e.
func (f *fold) of(e int) backend.ExpertGradient {
	if e == f.l.Experts {
		return *f.g.Shared
	}
	return f.g.Experts[e]
}

// Add puts the rows behind those that wait, folds in all full segments and keeps the rest.
func (f *fold) Add(a backend.FoldArgs) error {
	l, p := f.l, view(a.Rows)
	x, dy := host.BF16(a.X), host.BF16(a.DY)
	for e := range f.streams {
		if p.rows(e) == 0 {
			continue
		}
		s, grad := &f.streams[e], of(l, e, a.RoutedGrad, a.SharedGrad)
		s.x = gather(s.x, p, e, 0, p.rows(e), x, l.Hidden)
		s.dy = gather(s.dy, p, e, 0, p.rows(e), dy, l.Hidden)
		s.dgate = append(s.dgate, l.rows(p, e, grad.DGate)...)
		s.dup = append(s.dup, l.rows(p, e, grad.DUp)...)
		s.hw = append(s.hw, l.rows(p, e, grad.HW)...)
	}
	f.fold(func(e int) int { return len(f.streams[e].x) / contract.FoldSegment })
	f.router(a)
	return nil
}

// Flush folds in what waits.
func (f *fold) Flush() error {
	f.fold(func(e int) int { return (len(f.streams[e].x) + contract.FoldSegment - 1) / contract.FoldSegment })
	return nil
}

func (*fold) Close() error { return nil }

// fold takes some segments of each group's stream into the accumulators, and drops them.
func (f *fold) fold(segments func(e int) int) {
	l := f.l
	// each calls do for the segments of a task's group.
	each := func(t task, do func(s stream, from, to int)) {
		s := f.streams[t.group]
		for i := range segments(t.group) {
			do(s, i*contract.FoldSegment, min((i+1)*contract.FoldSegment, len(s.x)))
		}
	}
	// Rows of gate's and up's gradients, then rows of down's.
	l.perGroup(l.width, segments, func(w *worker, t task) {
		g, at := f.of(t.group), t.from*l.Hidden
		each(t, func(s stream, from, to int) {
			x := w.together(s.x[from:to])
			w.Fold(host.FP32(g.Gate)[at:], l.Hidden, s.dgate[from:to], t.from, t.to, x)
			w.Fold(host.FP32(g.Up)[at:], l.Hidden, s.dup[from:to], t.from, t.to, x)
		})
	})
	l.perGroup(l.hidden, segments, func(w *worker, t task) {
		width := l.width(t.group)
		each(t, func(s stream, from, to int) {
			w.Fold(host.FP32(f.of(t.group).Down)[t.from*width:], width, s.dy[from:to], t.from, t.to, w.together(s.hw[from:to]))
		})
	})
	for e := range f.streams {
		f.streams[e].drop(min(segments(e)*contract.FoldSegment, len(f.streams[e].x)))
	}
}

// router is R10's sums: every worker takes some columns of all tokens.
func (f *fold) router(a backend.FoldArgs) {
	l, p := f.l, view(a.Rows)
	x, ids, dlogits, dz := host.BF16(a.X), host.I32(a.IDs), host.FP32(a.DLogits), host.FP32(a.DZ)
	router, shared := host.FP32(f.g.Router), host.FP32(f.g.SharedGate)
	l.each(func(w *worker) {
		from, to := l.share(w.index, l.Hidden)
		for t := range a.Rows.Tokens {
			if p.row[t*(p.slots+1)] < 0 {
				continue
			}
			x := row(x, t, l.Hidden)[from:to]
			l.eachLogit(row(ids, t, l.TopK), dlogits, t, func(e int, dl float32) {
				l.FoldRouter(row(router, e, l.Hidden)[from:to], dl, x)
			})
			if p.shared {
				l.FoldRouter(shared[from:to], dz[t], x)
			}
		}
	})
}
