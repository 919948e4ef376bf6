// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"slices"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
)

// planned is a plan of this rank's tokens, read from the backend below.
type planned struct {
	slots                int
	offsets, token, slot []int32
	row                  []int32 // [T,K+1]
}

func readPlan(w *work, r backend.Rows, experts int) planned {
	p := planned{slots: r.Slots, offsets: get[int32](w, w.of(r.Offsets), experts+2), row: get[int32](w, w.of(r.Row), r.Tokens*(r.Slots+1))}
	n := int(p.offsets[experts+1])
	if *w.err == nil {
		p.token, p.slot = get[int32](w, w.of(r.Token), n), get[int32](w, w.of(r.Slot), n)
	}
	return p
}

// at is the row of a token's slot, -1 for none.
func (p *planned) at(token, slot int32) int32 { return p.row[int(token)*(p.slots+1)+int(slot)] }

// dispatch is which of this rank's rows go to which expert-parallel rank, and what comes from each. Rows are sorted by expert, so
// those for one owner are together; a token goes to an owner once, whatever number of its rows go there. At the owner rows stand
// in the order (source rank, expert, token), and so each expert's in the order of the stream (R11).
type dispatch struct {
	*Rank
	rows   []contract.Range // of the plan, by owner
	tokens [][]int32        // this rank's, by owner

	from    []int   // how many rows come, by source
	arrive  []int   // how many tokens come, by source
	experts []int32 // the expert of each row that comes, counted from the owner's first
	copyOf  []int32 // and which of the tokens that come it is of
}

// newDispatch tells the owners of rows what is to come.
func (r *Rank) newDispatch(p planned, experts int) (*dispatch, error) {
	defer r.sending("plan")()
	d := &dispatch{Rank: r}
	tokens := len(p.row) / (p.slots + 1)
	place := make([]int32, tokens) // of a token among those for an owner
	counts, notes := make([][]int32, r.Grid.EP), make([][]int32, r.Grid.EP)
	for q := range r.Grid.EP {
		own := r.Grid.Experts(q, experts)
		rows := contract.Range{From: int(p.offsets[own.From]), To: int(p.offsets[own.To])}
		var sent []int32
		for i := range place {
			place[i] = -1
		}
		for e := own.From; e < own.To; e++ {
			for _, t := range p.token[p.offsets[e]:p.offsets[e+1]] {
				if place[t] < 0 {
					place[t] = int32(len(sent))
					sent = append(sent, t)
				}
				notes[q] = append(notes[q], int32(e-own.From), place[t])
			}
		}
		d.rows, d.tokens = append(d.rows, rows), append(d.tokens, sent)
		counts[q] = []int32{int32(rows.Len()), int32(len(sent))}
	}
	heard, err := exchangeCounts(r.owners, counts)
	if err != nil {
		return nil, err
	}
	lengths := make([]int, r.Grid.EP)
	for s, h := range heard {
		d.from, d.arrive = append(d.from, int(h[0])), append(d.arrive, int(h[1]))
		lengths[s] = 2 * int(h[0])
	}
	noted, err := allToAll(r.owners, notes, lengths)
	before := int32(0)
	for s, n := range noted {
		for i := 0; i < len(n); i += 2 {
			d.experts, d.copyOf = append(d.experts, n[i]), append(d.copyOf, before+n[i+1])
		}
		before += int32(d.arrive[s])
	}
	return d, err
}

// toOwners gives a row of n numbers for every row that comes: its token's in m [T,n], on the rank that the token is of.
func (d *dispatch) toOwners(what string, m []BF16, n int) ([]BF16, error) {
	defer d.sending(what)()
	send, counts := make([][]BF16, len(d.tokens)), make([]int, len(d.tokens))
	for q, tokens := range d.tokens {
		for _, t := range tokens {
			send[q] = append(send[q], row(m, int(t), n)...)
		}
		counts[q] = d.arrive[q] * n
	}
	got, err := allToAll(d.owners, send, counts)
	if err != nil {
		return nil, err
	}
	tokens := slices.Concat(got...)
	out := make([]BF16, 0, len(d.copyOf)*n)
	for _, i := range d.copyOf {
		out = append(out, row(tokens, int(i), n)...)
	}
	return out, nil
}

// sendRows sends one number a row of the plan to the rows' owners.
func (d *dispatch) sendRows(what string, v []float32) ([]float32, error) {
	defer d.sending(what)()
	send := make([][]float32, len(d.rows))
	for q, r := range d.rows {
		send[q] = v[r.From:r.To]
	}
	got, err := allToAll(d.owners, send, d.from)
	return slices.Concat(got...), err
}

// comeHome gives what the owners made of this rank's rows, n numbers each, in the plan's order.
func comeHome[T any](d *dispatch, what string, made []T, n int) ([]T, error) {
	defer d.sending(what)()
	send, counts := make([][]T, len(d.from)), make([]int, len(d.from))
	at := 0
	for s, rows := range d.from {
		send[s] = made[at*n : (at+rows)*n]
		at += rows
		counts[s] = d.rows[s].Len() * n
	}
	got, err := allToAll(d.owners, send, counts)
	return slices.Concat(got...), err
}
