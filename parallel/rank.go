// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
)

// Rank is one rank of a grid. It is a backend.Spreader, for samebit.Options. The layers on it, of which there may be many, must
// be called one at a time, and in the same order on every rank.
type Rank struct {
	Group  Group // all ranks
	Grid   Grid
	tp, ep int   // where it stands
	column Group // the tensor-parallel ranks, which have the same tokens and slice the same experts
	owners Group // the expert-parallel ranks of the same slice, which have other tokens and own other experts
	volume Volume
	layers int // how many were begun
}

// Join makes a grid of a group's ranks. All of them must call it; any that ask for another grid, or that have another version of
// the contract, make it an error on every one.
func Join(g Group, grid Grid) (*Rank, error) { return join(g, grid, contract.Version) }

func join(g Group, grid Grid, version int) (*Rank, error) {
	r := &Rank{Group: g, Grid: grid, volume: Volume{}}
	err := r.agree("join", struct {
		Contract int
		Grid     Grid
	}{version, grid}, nil)
	if err != nil {
		return nil, err
	}
	if grid.TP < 1 || grid.EP < 1 || grid.TP > g.Size() || grid.EP > g.Size() || grid.Ranks() != g.Size() {
		return nil, fmt.Errorf("grid %v: found %d ranks: need %d", grid, g.Size(), grid.Ranks())
	}
	r.tp, r.ep = grid.At(g.Rank())
	var column, owners []int
	for i := range g.Size() {
		tp, ep := grid.At(i)
		if ep == r.ep {
			column = append(column, i)
		}
		if tp == r.tp {
			owners = append(owners, i)
		}
	}
	r.column, r.owners = g.Sub(column), g.Sub(owners)
	return r, nil
}

const notice = 4 << 10 // bytes of what a rank says of itself

// say gives what every rank says of itself, and the error of the first that has one, as *Failed. A rank with an error of its own gets
// that. All must be doing the same.
func say[T any](r *Rank, doing string, what T, mine error) ([]T, error) {
	type said struct {
		Doing string
		What  T
		Error string
	}
	n := r.Group.Size()
	text, err := json.Marshal(said{doing, what, shortened(mine)})
	if err != nil || len(text) > notice {
		panic(fmt.Sprintf("parallel: a notice of %d bytes: %v", len(text), err))
	}
	all, err := allGather(r.Group, append(text, bytes.Repeat([]byte{' '}, notice-len(text))...), slices.Repeat([]int{notice}, n))
	if err != nil {
		return nil, err
	}
	heard := make([]T, n)
	for i, text := range all {
		var call struct{ Doing string } // of others What may be of another type
		if json.Unmarshal(text, &call) == nil && call.Doing != doing {
			return nil, cmp.Or(mine, fmt.Errorf("rank %d calls %s, rank %d calls %s: need the same calls in the same order on every rank",
				r.Group.Rank(), doing, i, call.Doing))
		}
		var h said
		if err := json.Unmarshal(text, &h); err != nil {
			return nil, fmt.Errorf("rank %d: found a notice %.40q: need the same program on every rank", i, text)
		}
		if heard[i] = h.What; h.Error != "" && mine == nil {
			mine = &Failed{i, h.Error}
		}
	}
	return heard, mine
}

// Tell tells all ranks a text of any length, and gives what each has told. All must call it.
func (r *Rank) Tell(text string) ([]string, error) {
	lengths, err := say(r, "tell", len(text), nil)
	if err != nil {
		return nil, err
	}
	all, err := allGather(r.Group, []byte(text), lengths)
	if err != nil {
		return nil, err
	}
	told := make([]string, len(all))
	for i, text := range all {
		told[i] = string(text)
	}
	return told, nil
}

// Compare tells all ranks a text of any length, and is an error where it is not alike on all; what names it, or is "". All must call it.
func (r *Rank) Compare(what, mine string) error {
	told, err := r.Tell(mine)
	if err != nil {
		return err
	}
	for i, other := range told {
		if other != told[0] {
			return fmt.Errorf("rank 0 has %s, rank %d has %s: need %s on every rank", told[0], i, other, strings.TrimSpace("the same "+what))
		}
	}
	return nil
}

// shortened is an error's text, so that it fits into a notice.
func shortened(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	return text[:min(len(text), notice/8)]
}

// agree has all ranks say the same, or gives every one an error.
func (r *Rank) agree(doing string, what any, mine error) error {
	return r.agreeShares(doing, what, "", mine)
}

// agreeShares has all ranks say the same, and those of the same tensor-parallel number also of the share that these have of what all
// columns have; or gives every one an error.
func (r *Rank) agreeShares(doing string, what any, share string, mine error) error {
	type holding struct {
		What  json.RawMessage
		Share string
	}
	text, err := json.Marshal(what)
	if err != nil {
		panic(fmt.Sprintf("parallel: %s of %T: %v", doing, what, err))
	}
	heard, err := say(r, doing, holding{text, share}, mine)
	if err != nil {
		return err
	}
	for i, h := range heard {
		if a, b := string(heard[0].What), string(h.What); a != b {
			return fmt.Errorf("%s: rank 0 has %s, rank %d has %s: need the same on every rank", doing, a, i, b)
		}
		if h.Share == "" {
			continue
		}
		if tp, _ := r.Grid.At(i); h.Share != heard[tp].Share {
			return fmt.Errorf("%s: of the shared expert rank %d has %s, rank %d, which has the same share of it, has %s: need the same on both",
				doing, tp, heard[tp].Share, i, h.Share)
		}
	}
	return nil
}

// Column is the number of this rank's column.
func (r *Rank) Column() int { return r.ep }

// Part is what this rank holds of a layer of that shape.
func (r *Rank) Part(s contract.Shape) contract.Part { return r.Grid.Part(r.Group.Rank(), s) }

// Spread is b as this rank of the grid.
func (r *Rank) Spread(b backend.Backend) backend.Backend { return &machine{b, r} }

// machine implements backend.Backend: this rank's share of the work, on the backend below.
type machine struct {
	backend.Backend
	*Rank
}

func (m *machine) Device() string {
	return fmt.Sprintf("rank %d of %v, on %s", m.Group.Rank(), m.Grid, m.Backend.Device())
}
