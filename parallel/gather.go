// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/samebit/samebit/contract"
)

// Everyone is for gathers whose result all ranks get.
const Everyone = -1

// GatherRows gives what the columns have of their tokens, in the order of the stream, on every rank: counts says how many elements
// are each column's. All ranks must call it; counts that do not fit, or differ, are an error on every one.
func GatherRows[T any](r *Rank, mine []T, counts []int) ([]T, error) {
	var err error
	if len(counts) != r.Grid.EP {
		err = fmt.Errorf("gather: counts of %d columns: need %d", len(counts), r.Grid.EP)
	} else if n := counts[r.ep]; n != len(mine) {
		err = fmt.Errorf("gather: %d elements where counts says %d: need as many", len(mine), n)
	}
	if err := r.agree("gather rows", sum(counts), err); err != nil {
		return nil, err
	}
	got, err := allGather(r.owners, mine, counts)
	return slices.Concat(got...), err
}

// GatherGradients gives the whole gradients of the ranks' parts, to one rank, the others getting nil, or to Everyone. All ranks must
// call it with the same s and to, and each with its Part; else it is an error on every one.
func GatherGradients(r *Rank, part *contract.Gradients, s contract.Shape, to int) (*contract.Gradients, error) {
	whole, err := gatherParts(r, "gather gradients", part, s, to, s.NewGradients)
	if whole != nil {
		copy(whole.Router, part.Router)
		copy(whole.SharedGate, part.SharedGate)
	}
	return whole, err
}

// GatherWeights is GatherGradients of weights.
func GatherWeights(r *Rank, part *contract.Weights, s contract.Shape, to int) (*contract.Weights, error) {
	whole, err := gatherParts(r, "gather weights", part, s, to, s.NewWeights)
	if whole != nil {
		copy(whole.Router, part.Router)
		copy(whole.SharedGate, part.SharedGate)
	}
	return whole, err
}

// parts are weights or gradients of a part.
type parts[T BF16 | float32] interface {
	CheckPart(contract.Part) error
	Matrices(e int) contract.Matrices[T]
}

// gatherParts puts the experts' matrices together, in what fresh makes; that is for who gets it.
func gatherParts[T BF16 | float32, P parts[T]](r *Rank, doing string, part P, s contract.Shape, to int, fresh func() P) (whole P, err error) {
	if err := r.gathering(doing, s, to, part); err != nil {
		return whole, err
	}
	if !r.gets(to) {
		return whole, gatherExperts(r, s, to, part.Matrices, nil)
	}
	whole = fresh()
	return whole, gatherExperts(r, s, to, part.Matrices, whole.Matrices)
}

// gathering compares what ranks are to gather, and to whom.
func (r *Rank) gathering(doing string, s contract.Shape, to int, part interface{ CheckPart(contract.Part) error }) error {
	err := cmp.Or(s.Check(), r.Grid.Check(s))
	if err == nil {
		err = part.CheckPart(r.Part(s))
	}
	if n := r.Group.Size(); err == nil && to != Everyone && (to < 0 || to >= n) {
		err = fmt.Errorf("%s: to rank %d: need one of 0 to %d, or Everyone (%d)", doing, to, n-1, Everyone)
	}
	about := struct {
		Shape contract.Shape
		To    int
	}{s, to}
	return r.agree(doing, about, err)
}

// gets says whether this rank gets what is gathered to one.
func (r *Rank) gets(to int) bool { return to == Everyone || to == r.Group.Rank() }

// CutWeights is a part of weights, sharing their memory where it can.
func CutWeights(w *contract.Weights, p contract.Part) *contract.Weights {
	part := &contract.Weights{Router: w.Router, SharedGate: w.SharedGate, Experts: make([]contract.Expert, p.Shape.Experts)}
	for e := p.Experts.From; e < p.Experts.To; e++ {
		part.Experts[e] = cutExpert(&w.Experts[e], p.Shape.Hidden, p.Shape.Width, p.Width)
	}
	if w.Shared != nil {
		shared := cutExpert(w.Shared, p.Shape.Hidden, p.Shape.SharedWidth, p.Shared)
		part.Shared = &shared
	}
	return part
}

// cutExpert is a share of an expert's width.
func cutExpert(x *contract.Expert, hidden, width int, share contract.Range) contract.Expert {
	from, to := share.From*hidden, share.To*hidden
	return contract.Expert{Gate: x.Gate[from:to], Up: x.Up[from:to], Down: columnsOf(x.Down, width, share)}
}

// gatherExperts puts the ranks' parts of all experts, the shared one last, to their places in whole, an expert at a time.
func gatherExperts[T BF16 | float32](r *Rank, s contract.Shape, to int, mine, whole func(e int) contract.Matrices[T]) error {
	defer r.sending("gather")()
	experts := s.Experts
	if s.SharedWidth > 0 {
		experts++
	}
	for e := range experts {
		width := s.Width
		if e == s.Experts {
			width = s.SharedWidth
		}
		send, counts := make([][]T, r.Group.Size()), make([]int, r.Group.Size())
		parts := make([]contract.Range, r.Group.Size())
		for i := range parts {
			tp, ep := r.Grid.At(i)
			if owner := e == s.Experts && ep == 0 || e < s.Experts && r.Grid.Experts(ep, s.Experts).Has(e); !owner {
				continue
			}
			parts[i] = r.Grid.Inner(tp, width)
			if r.gets(to) {
				counts[i] = 3 * parts[i].Len() * s.Hidden
			}
		}
		if parts[r.Group.Rank()].Len() > 0 {
			x := mine(e)
			data := slices.Concat(*x.Gate, *x.Up, *x.Down)
			for i := range send {
				if to == Everyone || to == i {
					send[i] = data
				}
			}
		}
		got, err := allToAll(r.Group, send, counts)
		if err != nil {
			return err
		}
		for i, p := range parts {
			if n := p.Len() * s.Hidden; counts[i] > 0 {
				x := whole(e)
				copy((*x.Gate)[p.From*s.Hidden:], got[i][:n])
				copy((*x.Up)[p.From*s.Hidden:], got[i][n:2*n])
				setColumns(*x.Down, width, p, got[i][2*n:])
			}
		}
	}
	return nil
}
