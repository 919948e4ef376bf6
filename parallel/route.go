// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import "github.com/samebit/samebit/backend"

// Route is R2 to R4 and R13, of this rank's tokens, by the router that every rank has.
func (l *layer) Route(a backend.Route) error {
	if a.Tokens == 0 {
		return nil
	}
	w := l.newWork()
	w.run(func() error {
		return l.home.layer.Route(backend.Route{Tokens: a.Tokens, X: w.of(a.X), Replay: w.of(a.Replay), Logits: w.of(a.Logits), Z: w.of(a.Z),
			Status: w.of(a.Status), IDs: w.of(a.IDs), Weights: w.of(a.Weights)})
	})
	return *w.err
}

// rows are the buffers of a plan below those of a rank.
func (w *work) rows(r backend.Rows) backend.Rows {
	r.Offsets, r.Token, r.Slot, r.Row = w.of(r.Offsets), w.of(r.Token), w.of(r.Slot), w.of(r.Row)
	return r
}

// Plan is R5, of this rank's tokens; the rows' owners learn what is to come.
func (l *layer) Plan(a backend.Plan) error {
	w := l.newWork()
	j := &journey{work: w}
	a.Rows.Offsets.(*buffer).carry(j)
	j.plan = planned{slots: a.Rows.Slots, offsets: make([]int32, l.Experts+2)}
	if a.Rows.Tokens > 0 {
		w.run(func() error { return l.home.layer.Plan(backend.Plan{IDs: w.of(a.IDs), Rows: w.rows(a.Rows)}) })
		j.plan = readPlan(w, a.Rows, l.Experts)
	}
	w.run(func() (err error) {
		j.dispatch, err = l.newDispatch(j.plan, l.Experts)
		return err
	})
	return *w.err
}

// journey is the way of a forward's rows, kept with the plan.
type journey struct {
	*work
	plan     planned
	dispatch *dispatch
	sent     bool   // x was
	rows     []BF16 // between Down and Combine: [R,O] in the plan's order, O being this rank's share of H
}

// bytes is the memory that it holds, below and here.
func (j *journey) bytes() int64 {
	n := j.work.bytes() + 4*int64(len(j.plan.offsets)+len(j.plan.token)+len(j.plan.slot)+len(j.plan.row)) + 2*int64(len(j.rows))
	if d := j.dispatch; d != nil {
		n += 4 * int64(len(d.experts)+len(d.copyOf))
		for _, tokens := range d.tokens {
			n += 4 * int64(len(tokens))
		}
	}
	return n
}

// journeyOf is that of a plan.
func journeyOf(r backend.Rows) *journey { return r.Offsets.(*buffer).carried.(*journey) }
