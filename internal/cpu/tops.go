// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"github.com/samebit/samebit/internal/cpu/tcdot"
)

// tops are tcdot.Top of each weight matrix.
type tops struct {
	router, sharedGate int
	experts            []expertTops // E+1
}

type expertTops struct{ gate, up, down int }

// Refresh reads the weights, which may have changed in place, and refuses those that are not finite (R13).
func (l *layer) Refresh() error {
	l.tops = tops{router: tcdot.Top(l.w.Router), sharedGate: tcdot.Top(l.w.SharedGate), experts: make([]expertTops, l.Experts+1)}
	groups := l.Experts
	if l.w.Shared != nil {
		groups++
	}
	l.each(func(w *worker) {
		from, to := l.share(w.index, groups)
		for e := from; e < to; e++ {
			x := l.expert(e)
			l.tops.experts[e] = expertTops{tcdot.Top(x.Gate), tcdot.Top(x.Up), tcdot.Top(x.Down)}
		}
	})
	for e, t := range l.tops.experts {
		l.tops.experts[e] = t
		if max(t.gate, t.up, t.down) == notFinite {
			return l.w.CheckFinite()
		}
	}
	if max(l.tops.router, l.tops.sharedGate) == notFinite {
		return l.w.CheckFinite()
	}
	return nil
}

// notFinite is the top of a matrix with an infinity or a NaN.
const notFinite = 255

// gate is the right operand of x times group e's gate projection; up and down are as gate.
func (l *layer) gate(e int) tcdot.Right {
	return tcdot.Rows(l.expert(e).Gate, l.Hidden, l.tops.experts[e].gate)
}

func (l *layer) up(e int) tcdot.Right {
	return tcdot.Rows(l.expert(e).Up, l.Hidden, l.tops.experts[e].up)
}

func (l *layer) down(e int) tcdot.Right {
	return tcdot.Rows(l.expert(e).Down, l.width(e), l.tops.experts[e].down)
}

// downColumns is the right operand of dy times group e's down projection.
func (l *layer) downColumns(e int) tcdot.Right {
	return tcdot.Columns(l.width(e), l.tops.experts[e].down, l.expert(e).Down)
}

// gateUpColumns is the right operand of [dg|du] times [gate;up].
func (l *layer) gateUpColumns(e int) tcdot.Right {
	t, x := l.tops.experts[e], l.expert(e)
	return tcdot.Columns(l.Hidden, max(t.gate, t.up), x.Gate, x.Up)
}
