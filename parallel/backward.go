// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import "github.com/samebit/samebit/backend"

// journeyBackward is the rows of a backward on their way.
type journeyBackward struct {
	*work
	forward        *journey
	plan           planned
	weights        []float32 // [R]
	routed, shared *visitBackward
	rows           []BF16 // between RowsBackward and InputGradient: [R,O] in the plan's order
}

func backwardOf(r backend.Rows) *journeyBackward {
	return r.Offsets.(*buffer).carried.(*journeyBackward)
}

// PlanBackward is R5 without the tokens that take no part (R9), of this rank's tokens.
func (l *layer) PlanBackward(a backend.PlanBackward) error {
	w := l.newWork()
	j := &journeyBackward{work: w, plan: planned{slots: a.Rows.Slots, offsets: make([]int32, l.Experts+2)}}
	a.Rows.Offsets.(*buffer).carry(j)
	if a.Rows.Tokens > 0 {
		w.run(func() error {
			return l.home.layer.PlanBackward(backend.PlanBackward{DY: w.of(a.DY), IDs: w.of(a.IDs), Weights: w.of(a.Weights), Z: w.of(a.Z),
				Rows: w.rows(a.Rows), Weight: w.of(a.Weight)})
		})
		j.plan = readPlan(w, a.Rows, l.Experts)
		j.weights = get[float32](w, w.of(a.Weight), len(j.plan.token))
	}
	return *w.err
}

// ExpertsBackward is R8: dy and the weights go to the experts' owners, and the weights' gradients come home. An owner leaves out
// the rows that take no part by the same rule as this rank.
func (l *layer) ExpertsBackward(a backend.ExpertsBackward) error {
	j, f, s := backwardOf(a.Rows), journeyOf(a.Forward), stayOf(a.Routed)
	j.forward = f
	dy := get[BF16](j.work, j.of(a.DY), a.Rows.Tokens*l.Hidden)
	var arrived []BF16
	var theirs []float32
	j.run(func() (err error) {
		if arrived, err = f.dispatch.toOwners("dy", dy, l.Hidden); err == nil {
			theirs, err = f.dispatch.sendRows("route weights", j.routedWeights())
		}
		return err
	})
	if *j.err != nil {
		return *j.err
	}
	j.routed = s.routed.backward(j.work, arrived, theirs)
	made := j.routed.experts()
	var shared []float32
	if l.shared != nil && *j.err == nil {
		j.shared = s.shared.backward(j.work, dy, j.sharedWeights())
		shared = j.shared.experts()
	}
	dweight := comeBack(j, "dw", made, shared, 1)
	if len(dweight) > 0 && *j.err == nil {
		put(j.work, j.of(a.DWeight).Slice(0, len(dweight)), dweight)
	}
	return *j.err
}

// routedWeights are the weights of the forward's rows, 0 of those that take no part.
func (j *journeyBackward) routedWeights() []float32 {
	f := &j.forward.plan
	all := make([]float32, len(f.token))
	for r, t := range j.plan.token {
		all[f.at(t, j.plan.slot[r])] = j.weights[r]
	}
	return all[:f.offsets[len(f.offsets)-2]]
}

// sharedWeights are the weights of the shared expert's rows by token, 0 of those that take no part.
func (j *journeyBackward) sharedWeights() []float32 {
	all := make([]float32, len(j.plan.row)/(j.plan.slots+1))
	for t := range all {
		if r := j.plan.at(int32(t), int32(j.plan.slots)); r >= 0 {
			all[t] = j.weights[r]
		}
	}
	return all
}

// comeBack gives rows of n numbers in the backward plan's order, of what the owners made of the forward's rows, and of the shared
// expert's by token.
func comeBack[T any](j *journeyBackward, what string, made, shared []T, n int) []T {
	var home []T
	j.run(func() (err error) {
		home, err = comeHome(j.forward.dispatch, what, made, n)
		return err
	})
	if *j.err != nil {
		return nil
	}
	rows := make([]T, 0, len(j.plan.token)*n)
	for r, t := range j.plan.token {
		if slot := j.plan.slot[r]; int(slot) == j.plan.slots {
			rows = append(rows, row(shared, int(t), n)...)
		} else {
			rows = append(rows, row(home, int(j.forward.plan.at(t, slot)), n)...)
		}
	}
	return rows
}

// RouteBackward is R10 up to the gradients of the logits, of this rank's tokens.
func (l *layer) RouteBackward(a backend.RouteBackward) error {
	if a.Rows.Tokens == 0 {
		return nil
	}
	w := backwardOf(a.Rows).work
	w.run(func() error {
		return l.home.layer.RouteBackward(backend.RouteBackward{Rows: w.rows(a.Rows), DWeight: w.of(a.DWeight), Logits: w.of(a.Logits),
			IDs: w.of(a.IDs), Weights: w.of(a.Weights), Z: w.of(a.Z), DLogits: w.of(a.DLogits), DZ: w.of(a.DZ)})
	})
	return *w.err
}

// RowsBackward is R9 up to each row's part of dx, of which this rank's share of H comes home.
func (l *layer) RowsBackward(a backend.RowsBackward) error {
	j := backwardOf(a.Rows)
	made := j.routed.inputs()
	var shared []BF16
	if l.shared != nil {
		shared = j.shared.inputs()
	}
	j.rows = comeBack(j, "dx rows", made, shared, l.head.columns.Len())
	return *j.err
}

// InputGradient is R9's sum where the token lives: of this rank's share of H, which crosses the column to make the whole.
func (l *layer) InputGradient(a backend.InputGradient) error {
	j := backwardOf(a.Rows)
	rows := j.rows
	j.rows = nil
	if a.Rows.Tokens == 0 {
		return nil
	}
	w := j.brief()
	defer w.close()
	in := made(w, backend.BF16, rows)
	l.outputs(w, "dx", a.Rows.Tokens, a.DX, func(dx backend.Buffer) error {
		return l.head.layer.InputGradient(backend.InputGradient{Rows: w.rows(a.Rows), In: in, IDs: w.of(a.IDs), DLogits: w.of(a.DLogits),
			DZ: w.of(a.DZ), DX: dx})
	})
	return *w.err
}
