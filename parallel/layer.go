// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// layer implements backend.Ranks. The backend below has it as several layers, none of which knows of ranks.
type layer struct {
	*machine
	contract.Shape
	part   contract.Part
	number int // among the rank's layers
	folds  int // how many there have been
	given  *contract.Weights
	copied func([]BF16) // of backend.Spec

	home   slice        // the router and the shared gate, experts of width 0: this rank's tokens are routed and planned here
	head   slice        // the same for the H numbers of a row that this rank makes: combine, and the sum of dx
	tail   slice        // the same for this rank's part of H in common: the fold of what all ranks have
	common []commonPart // of the expert-parallel ranks
	routed *stack       // the experts that this rank owns
	shared *stack       // the shared expert, nil where there is none
}

// Load takes this rank's part of the weights: they are the whole layer's, of which no other part is read, or that part alone, as
// contract.Part lays it out. All ranks must call it.
func (m *machine) Load(s backend.Spec) (backend.Layer, error) {
	m.layers++
	l := &layer{machine: m, Shape: s.Shape, number: m.layers, part: m.Part(s.Shape), given: s.Weights, copied: s.Copied}
	if l.copied == nil {
		l.copied = func([]BF16) {}
	}
	if err := l.load(s); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *layer) load(s backend.Spec) error {
	err := cmp.Or(s.Shape.Check(), l.Grid.Check(s.Shape))
	if err == nil && l.given.CheckPart(l.part) != nil {
		err = l.given.Check(s.Shape)
	}
	about := struct {
		Layer      int
		Shape      contract.Shape
		BF16Logits bool
		Router     string // digest of the router and the shared gate
	}{l.number, s.Shape, s.BF16Logits, ""}
	shared := ""
	if err == nil {
		about.Router, shared = l.digests()
	}
	if err := l.agreeShares("load", about, shared, err); err != nil {
		return err
	}
	l.routed = l.newStack(s.Shape.Hidden, s.Shape.Width, l.part.Experts.Len())
	if s.Shape.SharedWidth > 0 {
		l.shared = l.newStack(s.Shape.Hidden, s.Shape.SharedWidth, 1)
	}
	l.home.columns = contract.Range{To: s.Shape.Hidden}
	l.common = commonParts(l.Grid.EP, s.Shape.Hidden, l.part.Shared.Len())
	l.head.columns, l.tail.columns = l.routed.outputs, l.common[l.ep].hidden
	if err := l.cut(); err != nil {
		return err
	}
	err = l.loadSlices(s)
	l.drop()
	return l.done("load", err)
}

// drop forgets the slices' experts.
func (l *layer) drop() {
	l.routed.drop()
	if l.shared != nil {
		l.shared.drop()
	}
}

// digests are of what every rank has, and of this rank's share of the shared expert, which every column has; "" where there is none.
func (l *layer) digests() (all, shared string) {
	all = digest(l.given.Router, l.given.SharedGate)
	if l.SharedWidth > 0 {
		x := l.own(l.Experts)
		shared = digest(x.Gate, x.Up, x.Down)
	}
	return all, shared
}

func digest(matrices ...[]BF16) string {
	h := sha256.New()
	for _, m := range matrices {
		h.Write(host.Bytes(m))
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// own is this rank's share of expert e, the shared one being expert E.
func (l *layer) own(e int) contract.Expert {
	x, width, share := l.given.Shared, l.SharedWidth, l.part.Shared
	if e < l.Experts {
		x, width, share = &l.given.Experts[e], l.Width, l.part.Width
	}
	if len(x.Gate) == share.Len()*l.Hidden {
		return *x
	}
	return cutExpert(x, l.Hidden, width, share)
}

// cut makes all slices' weights of those given.
func (l *layer) cut() error {
	var experts []contract.Expert
	for e := l.part.Experts.From; e < l.part.Experts.To; e++ {
		experts = append(experts, l.own(e))
	}
	defer l.sending("weights")()
	if err := l.routed.cut(experts); err != nil {
		return err
	}
	if l.shared != nil {
		if err := l.shared.cut([]contract.Expert{l.own(l.Experts)}); err != nil {
			return err
		}
	}
	for _, s := range []*slice{&l.home, &l.head, &l.tail} {
		if s.weights == nil {
			s.weights = l.shell(s).NewWeights()
		}
		copy(s.weights.Router, columnsOf(l.given.Router, l.Hidden, s.columns))
		copy(s.weights.SharedGate, columnsOf(l.given.SharedGate, l.Hidden, s.columns))
	}
	l.copied(l.given.Router)
	l.copied(l.given.SharedGate)
	return nil
}

// shell is the shape of a slice without experts. A shared expert there must be, or there would be no gate; of the tail's fold it
// has the width that this rank has the gradients of.
func (l *layer) shell(s *slice) contract.Shape {
	shape := l.Shape
	shape.Hidden, shape.Width = s.columns.Len(), 0
	if shape.SharedWidth > 0 {
		shape.SharedWidth = 1
		if s == &l.tail {
			shape.SharedWidth = max(1, l.common[l.ep].width.Len())
		}
	}
	return shape
}

func (l *layer) loadSlices(s backend.Spec) error {
	if err := l.routed.load(l.copied); err != nil {
		return err
	}
	if l.shared != nil {
		if err := l.shared.load(l.copied); err != nil {
			return err
		}
	}
	for _, slice := range []*slice{&l.home, &l.head, &l.tail} {
		if slice == &l.head && l.Grid.TP == 1 {
			slice.layer = l.home.layer
			continue
		}
		var err error
		slice.layer, err = l.Backend.Load(backend.Spec{Shape: l.shell(slice), Weights: slice.weights, BF16Logits: s.BF16Logits})
		if err != nil {
			return err
		}
	}
	return nil
}

// done has all ranks agree that the backends below have taken the weights. Of those that were refused the rank that they were given
// to can say which they are; the backend below counts a slice's own, and another rank's may have been in it.
func (l *layer) done(doing string, err error) error {
	var given error
	if err != nil {
		given = l.given.CheckFinite()
	}
	if err := l.agree(doing, "weights", given); err != nil {
		return err
	}
	return l.agree(doing, "done", err)
}

// layers are those of the backend below.
func (l *layer) layers() []backend.Layer {
	var all []backend.Layer
	for _, s := range []*stack{l.routed, l.shared} {
		if s != nil {
			all = append(all, s.layers()...)
		}
	}
	all = append(all, l.home.layer, l.tail.layer)
	if l.Grid.TP > 1 {
		all = append(all, l.head.layer)
	}
	return all
}

// Refresh cuts the weights anew. Of an expert's weights a rank looks at its own part alone, where an optimizer has changed it in
// place; the slices that cross the others' parts come from the ranks that have these. All ranks must call it.
func (l *layer) Refresh() error {
	router, shared := l.digests()
	about := struct {
		Layer  int
		Router string
	}{l.number, router}
	if err := l.agreeShares("refresh", about, shared, nil); err != nil {
		return err
	}
	if err := l.cut(); err != nil {
		return err
	}
	var err error
	for _, below := range l.layers() {
		err = cmp.Or(err, below.Refresh())
	}
	l.drop()
	return l.done("refresh", err)
}

// Close gives back what the layer holds.
func (l *layer) Close() error {
	var errs []error
	for _, below := range l.layers() {
		if below != nil {
			errs = append(errs, below.Close())
		}
	}
	return errors.Join(errs...)
}

// call is what a rank was asked to do, and with what.
type call struct {
	Asked    asked // alike on every rank
	Tokens   int
	Sum, IDs uint32 // of the tokens, and of the ids to replay
}

type asked struct {
	Layer, MaxTokens         int
	Recompute, Train, Replay bool
	Tape                     int64
	Gradients                int // which of the layer's, 0 for none
	BF16                     bool
}

// Begin compares the calls of all ranks, and cuts the stream that their tokens make, in the order of the columns, into chunks of
// MaxTokens a column: a chunk's tokens come all before the next one's, so that each expert's rows come in the stream's order
// (R11).
func (l *layer) Begin(c backend.Call) ([]contract.Range, error) {
	mine := call{Asked: asked{Layer: l.number, MaxTokens: c.MaxTokens, Recompute: c.Recompute}}
	if c.Err == nil {
		mine.Asked.Train, mine.Asked.Replay, mine.Asked.Tape = c.Train, c.Replay, c.Tape
		if f, _ := c.Fold.(*fold); f != nil {
			mine.Asked.Gradients, mine.Asked.BF16 = f.number, f.dtype == backend.BF16
		}
		mine.Tokens, mine.Sum, mine.IDs = c.Tokens, sum(c.Data), sum(c.IDs)
	}
	all, err := say(l.Rank, c.Name, mine, c.Err)
	if err != nil {
		return nil, err
	}
	counts := make([]int, l.Grid.EP)
	for i, other := range all {
		if other.Asked != all[0].Asked {
			return nil, fmt.Errorf("%s: rank 0 was asked for %+v, rank %d for %+v: need the same call on every rank", c.Name, all[0].Asked, i, other.Asked)
		}
		tp, ep := l.Grid.At(i)
		first := ep * l.Grid.TP
		if column := all[first]; other.Tokens != column.Tokens || other.Sum != column.Sum {
			return nil, fmt.Errorf("%s: ranks %d and %d, which slice the same experts, were given %d and %d tokens of sums %08x and %08x: need the same tokens",
				c.Name, first, i, column.Tokens, other.Tokens, column.Sum, other.Sum)
		} else if other.IDs != column.IDs {
			return nil, fmt.Errorf("%s: ranks %d and %d, which slice the same experts, were given ids to replay of sums %08x and %08x: need the same ids",
				c.Name, first, i, column.IDs, other.IDs)
		}
		if tp == 0 {
			counts[ep] = other.Tokens
		}
	}
	return chunks(counts, l.ep, c.MaxTokens*l.Grid.EP), nil
}

// chunks are rank me's parts of each chunk of a stream, which has counts[r] tokens of each rank in turn.
func chunks(counts []int, me, size int) []contract.Range {
	first, total := 0, 0
	for r, n := range counts {
		if r < me {
			first += n
		}
		total += n
	}
	var cuts []contract.Range
	for from := 0; from < total; from += size {
		cuts = append(cuts, contract.Range{
			From: min(max(from-first, 0), counts[me]), To: min(max(from+size-first, 0), counts[me]),
		})
	}
	return cuts
}

// Abort ends the exchanges of all ranks.
func (l *layer) Abort(err error) { l.Group.Abort(err) }
