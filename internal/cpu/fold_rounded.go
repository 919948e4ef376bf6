// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// roundedGradient is what a fold into BF16 keeps in FP32 until its one cast. An expert of few rows needs nothing: Flush makes
// its gradient a few rows at a time, in the cache.
type roundedGradient struct {
	l                  *layer
	router, sharedGate []float32
	sums               []accumulators // E+1; nil where all rows of the stream still wait
}

func newRoundedGradient(l *layer, g *backend.Gradients) *roundedGradient {
	r := &roundedGradient{l: l, router: make([]float32, g.Router.Len()), sums: make([]accumulators, l.Experts+1)}
	if g.SharedGate != nil {
		r.sharedGate = make([]float32, g.SharedGate.Len())
	}
	return r
}

// most is how many segments of a group wait for Flush.
const most = 16

// spills says whether a group's full segments must go into FP32 accumulators, and makes those.
func (r *roundedGradient) spills(e, full int) bool {
	if full <= most {
		return false
	}
	if s := &r.sums[e]; s.gate == nil {
		n := r.l.Hidden * r.l.width(e)
		s.gate, s.up, s.down = host.Floats(n), host.Floats(n), host.Floats(n)
	}
	return true
}

// flushRounded folds in what waits and casts: every element of the gradients is written, those without a row as +0.
func (f *fold) flushRounded() {
	l, r := f.l, f.bf16
	// A group without rows and sums costs a task too: it is cleared.
	cost := func(e int) int {
		if e == l.Experts && f.g.Shared == nil {
			return 0
		}
		return 1 + 4*segments(len(f.streams[e].x))
	}
	l.perGroup(l.width, cost, func(w *worker, t task) {
		s, sums, g := f.streams[t.group], r.sums[t.group], f.group(t.group)
		x := w.together(s.x)
		l.finish(w, host.BF16(g.Gate), sums.gate, s.dgate, t, x, l.Hidden)
		l.finish(w, host.BF16(g.Up), sums.up, s.dup, t, x, l.Hidden)
	})
	l.perGroup(l.hidden, cost, func(w *worker, t task) {
		s := f.streams[t.group]
		l.finish(w, host.BF16(f.group(t.group).Down), r.sums[t.group].down, s.dy, t, w.together(s.hw), l.width(t.group))
	})
	for e := range f.streams {
		f.streams[e].drop(len(f.streams[e].x))
	}
	l.Round(host.BF16(f.g.Router), r.router)
	l.Round(host.BF16(f.g.SharedGate), r.sharedGate)
	clear(r.router)
	clear(r.sharedGate)
}

// finish is a task's rows of a gradient [.,n]: what sums hold, which are +0 afterwards, the columns of a times b, cast.
func (l *layer) finish(w *worker, dst []contract.BF16, sums []float32, a [][]contract.BF16, t task, b []contract.BF16, n int) {
	if sums == nil && len(a) == 0 {
		clear(dst[t.from*n : t.to*n])
		return
	}
	const rows = 32 // whose sums stay in the cache
	for from := t.from; from < t.to; from += rows {
		to := min(from+rows, t.to)
		tile := w.float(0, (to-from)*n)
		if sums == nil {
			clear(tile)
		} else {
			copy(tile, sums[from*n:to*n])
			clear(sums[from*n : to*n])
		}
		for k := 0; k < len(a); k += contract.FoldSegment {
			end := min(k+contract.FoldSegment, len(a))
			w.Fold(tile, n, a[k:end], from, to, b[k*n:end*n])
		}
		l.Round(dst[from*n:to*n], tile)
	}
}
