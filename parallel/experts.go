// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import "github.com/samebit/samebit/backend"

// stay is the rows at the experts of this rank, kept with h: those that came from all ranks, and of this rank's tokens those of the
// shared expert.
type stay struct {
	*work
	routed, shared *visit
}

// stayOf is that of activations.
func stayOf(a backend.Activations) *stay { return a.H.(*buffer).carried.(*stay) }

// GateUp is R6 up to h: x goes to the experts' owners, and the shared expert takes this rank's own tokens. A backward that makes h
// again asks for it a second time.
func (l *layer) GateUp(a backend.GateUp) error {
	j, s := journeyOf(a.Rows), &stay{work: l.newWork()}
	what := "x"
	if j.sent {
		what = "x again"
	}
	j.sent = true
	a.Routed.H.(*buffer).carry(s)
	x := get[BF16](s.work, s.of(a.X), a.Rows.Tokens*l.Hidden)
	var arrived []BF16
	s.run(func() (err error) {
		arrived, err = j.dispatch.toOwners(what, x, l.Hidden)
		return err
	})
	train := a.Routed.G != nil
	if *s.err == nil {
		s.routed = l.routed.visit(s.work, arrived, j.dispatch.experts)
		s.routed.gateUp(train)
	}
	if l.shared != nil && *s.err == nil {
		s.shared = l.shared.visit(s.work, x, j.plan.working())
		s.shared.gateUp(train)
	}
	return *s.err
}

// working gives a token's expert among one, which is the shared one: -1 for a token without work.
func (p *planned) working() []int32 {
	var ids []int32
	for t := 0; t < len(p.row); t += p.slots + 1 {
		ids = append(ids, min(p.row[t], 0))
	}
	return ids
}

// Down is R6 from h: the rows come home.
func (l *layer) Down(a backend.Down) error {
	j, s := journeyOf(a.Rows), stayOf(a.Routed)
	n := l.routed.outputs.Len()
	made := s.routed.down()
	s.run(func() (err error) {
		j.rows, err = comeHome(j.dispatch, "rows", made, n)
		return err
	})
	if l.shared != nil {
		j.rows = append(j.rows, j.plan.live(s.shared.down(), n)...)
	}
	return *s.err
}

// live is the rows of m [T,n] that belong to tokens with work, in the plan's order, which is theirs.
func (p *planned) live(m []BF16, n int) []BF16 {
	var rows []BF16
	for t := range len(m) / max(n, 1) {
		if p.row[t*(p.slots+1)] >= 0 {
			rows = append(rows, row(m, t, n)...)
		}
	}
	return rows
}

// Combine is R7 where the token lives: of this rank's share of H, which crosses the column to make the whole.
func (l *layer) Combine(a backend.Combine) error {
	j := journeyOf(a.Rows)
	rows := j.rows
	j.rows = nil
	if a.Rows.Tokens == 0 || *j.err != nil {
		return *j.err
	}
	w := j.brief()
	defer w.close()
	in := made(w, backend.BF16, rows)
	l.outputs(w, "y", a.Rows.Tokens, a.Y, func(y backend.Buffer) error {
		return l.head.layer.Combine(backend.Combine{Rows: w.rows(a.Rows), In: in, Weights: w.of(a.Weights), Z: w.of(a.Z),
			Status: w.of(a.Status), Y: y})
	})
	return *w.err
}

// outputs has a stage make this rank's share of rows [n,H], and gathers the column's in whole.
func (l *layer) outputs(w *work, what string, n int, whole backend.Buffer, stage func(share backend.Buffer) error) {
	if l.Grid.TP == 1 {
		w.run(func() error { return stage(w.of(whole)) })
		return
	}
	share := w.alloc(backend.BF16, n*l.head.columns.Len())
	w.run(func() error { return stage(share) })
	mine := get[BF16](w, share, n*l.head.columns.Len())
	var all []BF16
	w.run(func() (err error) {
		defer l.sending(what)()
		all, err = gatherColumns(l.column, mine, shares(l.Grid.TP, l.Hidden), n, l.Hidden)
		return err
	})
	put(w, w.of(whole), all)
}
