// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

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
}

// Join makes a grid of a group's ranks. All of them must call it; any that ask for another grid, or that have another version of
// the contract, make it an error on every one.
func Join(g Group, grid Grid) (*Rank, error) {
	r := &Rank{Group: g, Grid: grid, volume: Volume{}}
	err := r.agree("join", struct {
		Contract int
		Grid     Grid
	}{contract.Version, grid}, nil)
	if err != nil {
		return nil, err
	}
	if grid.TP < 1 || grid.EP < 1 || grid.Ranks() != g.Size() {
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
// that.
func say[T any](r *Rank, what T, mine error) ([]T, error) {
	type said struct {
		What  T
		Error string
	}
	n := r.Group.Size()
	text, err := json.Marshal(said{what, shortened(mine)})
	if err == nil && len(text) > notice {
		err = fmt.Errorf("found %d bytes to tell the other ranks: need at most %d", len(text), notice)
	}
	if err != nil { // of which the others are told in place of it
		var nothing T
		mine = errors.Join(mine, err)
		if text, err = json.Marshal(said{nothing, shortened(mine)}); err != nil {
			return nil, err
		}
	}
	all, err := allGather(r.Group, append(text, bytes.Repeat([]byte{' '}, notice-len(text))...), slices.Repeat([]int{notice}, n))
	if err != nil {
		return nil, err
	}
	heard := make([]T, n)
	for i, text := range all {
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

// Tell tells all ranks a text, and gives what each has told. All must call it. A text of more than 4 kB, as JSON, of one rank is an
// error on every one.
func (r *Rank) Tell(text string) ([]string, error) { return say(r, text, nil) }

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
	heard, err := say(r, what, mine)
	for i, h := range heard {
		if a, b := fmt.Sprint(heard[0]), fmt.Sprint(h); err == nil && a != b {
			return fmt.Errorf("%s: rank 0 has %s, rank %d has %s: need the same on every rank", doing, a, i, b)
		}
	}
	return err
}

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
