// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// fold is R10's sums and R11. What does not fill a segment waits in its group's stream. Into FP32 it adds at once, in place;
// of BF16, which is cast once, everything waits for Flush, in FP32 where there is too much of it.
type fold struct {
	l       *layer
	g       *backend.Gradients
	streams []stream         // E+1
	bf16    *roundedGradient // nil for FP32
}

// stream is rows of one group, in token order: those that wait, which lie in the stream's own memory, and behind them, while
// they are added, a call's.
type stream struct {
	x, dy          [][]contract.BF16 // [H] each
	dgate, dup, hw [][]contract.BF16 // [I] each
	waiting        int
	own            [5][]contract.BF16 // each field's rows that wait, in whole segments
}

func (s *stream) fields() [5]*[][]contract.BF16 {
	return [...]*[][]contract.BF16{&s.x, &s.dy, &s.dgate, &s.dup, &s.hw}
}

// drop leaves out the first n rows, and keeps the rest for later.
func (s *stream) drop(n int) {
	for i, field := range s.fields() {
		rest := (*field)[n:]
		moved := n > 0
		if len(rest) > 0 {
			if need := segments(len(rest)) * contract.FoldSegment * len(rest[0]); len(s.own[i]) < need {
				s.own[i], moved = make([]contract.BF16, need), true
			}
		}
		for j, r := range rest {
			if mine := row(s.own[i], j, len(r)); moved || j >= s.waiting {
				copy(mine, r) // forwards: what moves within own moves to the front
				rest[j] = mine
			}
		}
		*field = append((*field)[:0], rest...)
	}
	s.waiting = len(s.x)
}

// segments is how many segments n rows take.
func segments(n int) int { return (n + contract.FoldSegment - 1) / contract.FoldSegment }

// NewFold starts a stream.
func (l *layer) NewFold(g *backend.Gradients) (backend.Fold, error) {
	f := &fold{l: l, g: g, streams: make([]stream, l.Experts+1)}
	if g.Router.Dtype() == backend.BF16 {
		f.bf16 = newRoundedGradient(l, g)
	}
	return f, nil
}

// group is where the gradient of group e goes.
func (f *fold) group(e int) backend.ExpertGradient {
	if e == f.l.Experts {
		return *f.g.Shared
	}
	return f.g.Experts[e]
}

// of is the accumulators of group e.
func (f *fold) of(e int) accumulators {
	if f.bf16 != nil {
		return f.bf16.sums[e]
	}
	g := f.group(e)
	return accumulators{host.FP32(g.Gate), host.FP32(g.Up), host.FP32(g.Down)}
}

// accumulators are one group's.
type accumulators struct{ gate, up, down []float32 }

// Add puts the rows behind those that wait, folds in all full segments and keeps the rest.
func (f *fold) Add(a backend.FoldArgs) error {
	l, p := f.l, view(a.Rows)
	x, dy := host.BF16(a.X), host.BF16(a.DY)
	for e := range f.streams {
		if p.rows(e) == 0 || l.width(e) == 0 {
			continue
		}
		s, grad := &f.streams[e], of(l, e, a.RoutedGrad, a.SharedGrad)
		s.x = gather(s.x, p, e, 0, p.rows(e), x, l.Hidden)
		s.dy = gather(s.dy, p, e, 0, p.rows(e), dy, l.Hidden)
		s.dgate = append(s.dgate, l.rows(p, e, grad.DGate)...)
		s.dup = append(s.dup, l.rows(p, e, grad.DUp)...)
		s.hw = append(s.hw, l.rows(p, e, grad.HW)...)
	}
	f.fold(func(e int) int {
		full := len(f.streams[e].x) / contract.FoldSegment
		if f.bf16 != nil && !f.bf16.spills(e, full) {
			return 0
		}
		return full
	})
	f.router(a)
	return nil
}

// Flush folds in what waits.
func (f *fold) Flush() error {
	if f.bf16 != nil {
		f.flushRounded()
	} else {
		f.fold(func(e int) int { return segments(len(f.streams[e].x)) })
	}
	return nil
}

func (*fold) Close() error { return nil }

// fold takes some segments of each group's stream into the accumulators, and drops them.
func (f *fold) fold(count func(e int) int) {
	l := f.l
	counts := make([]int, len(f.streams))
	for e := range counts {
		counts[e] = count(e)
	}
	take := func(e int) int { return counts[e] }
	// each calls do for the segments of a task's group.
	each := func(t task, do func(s stream, from, to int)) {
		s := f.streams[t.group]
		for i := range take(t.group) {
			do(s, i*contract.FoldSegment, min((i+1)*contract.FoldSegment, len(s.x)))
		}
	}
	// Rows of gate's and up's gradients, then rows of down's.
	l.perGroup(l.width, take, func(w *worker, t task) {
		g, at := f.of(t.group), t.from*l.Hidden
		each(t, func(s stream, from, to int) {
			x := w.together(s.x[from:to])
			w.Fold(g.gate[at:], l.Hidden, s.dgate[from:to], t.from, t.to, x)
			w.Fold(g.up[at:], l.Hidden, s.dup[from:to], t.from, t.to, x)
		})
	})
	l.perGroup(l.hidden, take, func(w *worker, t task) {
		width := l.width(t.group)
		each(t, func(s stream, from, to int) {
			w.Fold(f.of(t.group).down[t.from*width:], width, s.dy[from:to], t.from, t.to, w.together(s.hw[from:to]))
		})
	})
	for e := range f.streams {
		f.streams[e].drop(min(take(e)*contract.FoldSegment, len(f.streams[e].x)))
	}
}

// routerSums are the accumulators of the router and of the shared gate.
func (f *fold) routerSums() (router, sharedGate []float32) {
	if f.bf16 != nil {
		return f.bf16.router, f.bf16.sharedGate
	}
	return host.FP32(f.g.Router), host.FP32(f.g.SharedGate)
}

// router is R10's sums: every worker takes some columns of all tokens.
func (f *fold) router(a backend.FoldArgs) {
	l, p := f.l, view(a.Rows)
	x, ids, dlogits, dz := host.BF16(a.X), host.I32(a.IDs), host.FP32(a.DLogits), host.FP32(a.DZ)
	router, shared := f.routerSums()
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
