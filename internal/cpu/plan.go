// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// plan is a view of backend.Rows.
type plan struct {
	slots                     int
	shared                    bool
	offsets, token, slot, row []int32
}

func view(r backend.Rows) plan {
	return plan{r.Slots, r.Shared, host.I32(r.Offsets), host.I32(r.Token), host.I32(r.Slot), host.I32(r.Row)}
}

// rows is how many rows group e has, the first of which is at its offset.
func (p plan) rows(e int) int { return int(p.offsets[e+1] - p.offsets[e]) }

// first is where group e's rows begin in the buffers of its width: the shared expert has its own.
func (l *layer) first(p plan, e int) int {
	if e == l.Experts {
		return 0
	}
	return int(p.offsets[e])
}

// gather appends group e's rows from one to another, by token, of a matrix [T,n].
func gather[T any](rows [][]T, p plan, e, from, to int, m []T, n int) [][]T {
	first := int(p.offsets[e])
	for _, t := range p.token[first+from : first+to] {
		rows = append(rows, row(m, int(t), n))
	}
	return rows
}

// gather is gather into the worker's buffer.
func (w *worker) gather(p plan, e, from, to int, m []contract.BF16, n int) [][]contract.BF16 {
	w.rows = gather(w.rows[:0], p, e, from, to, m, n)
	return w.rows
}

// joined is each row of a with that of b behind it, in the worker's buffers.
func (w *worker) joined(a, b [][]contract.BF16) [][]contract.BF16 {
	w.rows, w.bf16 = w.rows[:0], w.bf16[:0]
	for i := range a {
		w.bf16 = append(append(w.bf16, a[i]...), b[i]...)
	}
	return append(w.rows, rowsOf(w.bf16, len(a[0])+len(b[0]))...)
}

// Plan is R5.
func (l *layer) Plan(a backend.Plan) error {
	l.plan(view(a.Rows), a.Rows.Tokens, host.I32(a.IDs))
	return nil
}

// plan is a stable counting sort of the slots by expert: tokens ascend within an expert. A token whose first id is -1 has
// no rows.
func (l *layer) plan(p plan, tokens int, ids []int32) {
	clear(p.offsets)
	live := 0
	for t := range tokens {
		ids := row(ids, t, p.slots)
		if ids[0] < 0 {
			continue
		}
		live++
		for _, e := range ids {
			p.offsets[e+1]++
		}
	}
	for e := range l.Experts {
		p.offsets[e+1] += p.offsets[e]
	}
	next := append([]int32(nil), p.offsets[:l.Experts+1]...)
	place := func(t, k, e int) {
		at := next[e]
		next[e]++
		p.token[at], p.slot[at], p.row[t*(p.slots+1)+k] = int32(t), int32(k), at
	}
	for t := range tokens {
		ids := row(ids, t, p.slots)
		of := row(p.row, t, p.slots+1)
		if ids[0] < 0 {
			for k := range of {
				of[k] = -1
			}
			continue
		}
		for k, e := range ids {
			place(t, k, int(e))
		}
		of[p.slots] = -1
		if p.shared {
			place(t, p.slots, l.Experts)
		}
	}
	p.offsets[l.Experts+1] = p.offsets[l.Experts]
	if p.shared {
		p.offsets[l.Experts+1] += int32(live)
	}
}

// PlanBackward is R5 without the tokens whose dy is all zero, and each row's route weight.
func (l *layer) PlanBackward(a backend.PlanBackward) error {
	p, dy := view(a.Rows), host.BF16(a.DY)
	ids := append([]int32(nil), host.I32(a.IDs)...)
	l.each(func(w *worker) {
		from, to := l.share(w.index, a.Rows.Tokens)
		for t := from; t < to; t++ {
			if l.AllZero(row(dy, t, l.Hidden)) {
				ids[t*p.slots] = -1
			}
		}
	})
	l.plan(p, a.Rows.Tokens, ids)
	weights, z, weight := host.FP32(a.Weights), host.FP32(a.Z), host.FP32(a.Weight)
	for i := range p.offsets[l.Experts] {
		weight[i] = weights[int(p.token[i])*p.slots+int(p.slot[i])]
	}
	for i := p.offsets[l.Experts]; i < p.offsets[l.Experts+1]; i++ {
		weight[i] = contract.Sigmoid(z[p.token[i]])
	}
	return nil
}
