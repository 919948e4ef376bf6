// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"errors"
	"fmt"
	"sync"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/parallel"
)

// Member is a layer under test on one rank of a grid, or on none.
type Member struct {
	*samebit.Layer
	Rank *parallel.Rank // nil for a layer that is whole
}

// open opens the layer once more, on each of these ranks; on none, whole.
func (s *Subject) open(o samebit.Options, ranks []*parallel.Rank) ([]Member, error) {
	if len(ranks) == 0 {
		ranks = []*parallel.Rank{nil}
	}
	members := make([]Member, len(ranks))
	err := parallel.Together(ranks, func(i int, r *parallel.Rank) (err error) {
		o := o
		if r != nil {
			o.Ranks = r
		}
		members[i].Rank = r
		members[i].Layer, err = samebit.New(s.Shape, s.Weights, o)
		return err
	})
	if err != nil {
		closeAll(members)
		return nil, err
	}
	return members, nil
}

func closeAll(members []Member) error {
	var errs []error
	for _, m := range members {
		if m.Layer != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

// LocalRanks are the ranks of a grid in this process.
func LocalRanks(grid parallel.Grid) ([]*parallel.Rank, error) {
	return JoinAll(parallel.Local(grid.Ranks()), grid)
}

// JoinAll makes a grid of groups of which every one is here.
func JoinAll(groups []parallel.Group, grid parallel.Grid) ([]*parallel.Rank, error) {
	ranks, errs := make([]*parallel.Rank, len(groups)), make([]error, len(groups))
	var joining sync.WaitGroup
	for i, g := range groups {
		joining.Go(func() { ranks[i], errs[i] = parallel.Join(g, grid) })
	}
	joining.Wait()
	return ranks, errors.Join(errs...)
}

// columns is how n tokens are shared out over a grid's columns: unevenly, and where there are few the first have none.
func (m Member) columns(n int) []int {
	if m.Rank == nil {
		return []int{n}
	}
	columns, at := m.Rank.Grid.EP, 0
	var counts []int
	for c := 1; c <= columns; c++ {
		to := n * c * c / (columns * columns)
		counts = append(counts, to-at)
		at = to
	}
	return counts
}

// column is the tokens of this member's, from one to another.
func (m Member) column(counts []int) (from, to int) {
	if m.Rank == nil {
		return 0, counts[0]
	}
	_, ep := m.Rank.Grid.At(m.Rank.Group.Rank())
	for _, n := range counts[:ep] {
		from += n
	}
	return from, from + counts[ep]
}

// gathered gives the rows of all columns, of n numbers each.
func gathered[T any](m Member, rows []T, counts []int, n int) ([]T, error) {
	if m.Rank == nil {
		return rows, nil
	}
	sizes := make([]int, len(counts))
	for i, c := range counts {
		sizes[i] = c * n
	}
	return parallel.GatherRows(m.Rank, rows, sizes)
}

// gradients are the whole layer's.
func (m Member) gradients(part *contract.Gradients) (*contract.Gradients, error) {
	if m.Rank == nil {
		return part, nil
	}
	return parallel.GatherGradients(m.Rank, part, m.Shape(), parallel.Everyone)
}

// throughRanks gives weights as the ranks hold them: each its part, put together again.
func (c *check) throughRanks(w *contract.Weights) *contract.Weights {
	if c.Grid == nil {
		return w
	}
	whole := make([]*contract.Weights, len(c.Ranks))
	c.must(parallel.Together(c.ranks(), func(i int, r *parallel.Rank) (err error) {
		whole[i], err = parallel.GatherWeights(r, parallel.CutWeights(w, c.Ranks[i].Part()), c.Shape, parallel.Everyone)
		return err
	}))
	return whole[0]
}

// elsewhere compares a digest with that of the same on ranks in other processes.
func (c *check) elsewhere(digest string) {
	if c.Grid == nil || len(c.Ranks) == c.Grid.Ranks() {
		return
	}
	digests, err := c.Ranks[0].Rank.Tell(digest)
	c.must(err)
	for i, d := range digests {
		c.claim(fmt.Sprintf("digest on rank %d", i), d, digests[0])
	}
}

// agree says which rank in another process has other results, or nil.
func (r *Report) agree(s *Subject) error {
	if s.Grid == nil || len(s.Ranks) == s.Grid.Ranks() {
		return nil
	}
	for _, x := range r.Of(s.Name) {
		if err := s.Ranks[0].Rank.Compare("", fmt.Sprintf("%s: %s, digest %s", x.ID, x.Verdict, x.Digest)); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}

// smallGrid is one to compare a whole layer with.
var smallGrid = parallel.Grid{TP: 2, EP: 2}

// grid compares what ranks give with what one process gives: forward, and every gradient (R12). A subject that is on no ranks is
// compared with a grid in this process.
func grid(c *check) {
	w := c.input(c.few(256))
	w.gradients = true
	w.cuts = []int{len(w.x) / c.Shape.Hidden / 3, len(w.x)/c.Shape.Hidden - len(w.x)/c.Shape.Hidden/3}
	var ranks []*parallel.Rank
	other := "one process"
	if c.Grid == nil {
		var err error
		if err = smallGrid.Check(c.Shape); err != nil {
			c.skip("%v", err)
		}
		ranks, err = LocalRanks(smallGrid)
		c.must(err)
		other = fmt.Sprint(smallGrid)
	}
	members, err := c.open(c.Options, ranks)
	c.must(err)
	defer closeAll(members)
	passes, err := runAll(members, w)
	c.must(err)
	have, need := c.run(w), passes[0]
	if c.Grid == nil {
		have, need = need, have
	}
	c.note("%s is the other side", other)
	c.same("ranks against one process", have.everything(), need.everything())
}
