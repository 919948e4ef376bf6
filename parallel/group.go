// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"fmt"
	"slices"

	"github.com/samebit/samebit/internal/host"
)

// Group is ranks that exchange bytes. Every rank of a group calls the same methods in the same order; what one sends must be as
// long as what the other expects. No method adds or otherwise looks into what it moves.
type Group interface {
	// Rank is this rank's number among Size.
	Rank() int
	Size() int
	// AllGather gives every rank's send: recv[r] is rank r's.
	AllGather(recv [][]byte, send []byte) error
	// AllToAll sends send[r] to rank r, and receives recv[r] from it. Parts may be of any sizes, also empty.
	AllToAll(recv, send [][]byte) error
	// Broadcast sends rank from's data to all others' data.
	Broadcast(data []byte, from int) error
	// Barrier returns when all ranks have come to it.
	Barrier() error
	// Sub is the group of some of the ranks, this one among them, numbered in the order given. All of them must call it.
	Sub(ranks []int) Group
	// Abort ends the exchanges of all ranks, those to come too, with this rank's error. It does nothing when called again.
	Abort(error)
	// Sent is how many bytes this rank has sent to others.
	Sent() int64
	// Close leaves the group. Ranks that wait for this one get an error.
	Close() error
}

// Link is what carries bytes between ranks: goroutines' memory, MPI, NCCL. A group is made of one by NewGroup.
type Link interface {
	// Rank is this rank's number among Size.
	Rank() int
	Size() int
	// Exchange sends send[i] to rank peers[i] and receives recv[i] from it, all at the same time. Between two ranks exchanges
	// are paired in the order of the calls. No peer is the rank itself, and none comes twice.
	Exchange(peers []int, recv, send [][]byte) error
	// Abort ends the exchanges of all ranks with this rank's error.
	Abort(error)
	Close() error
}

// NewGroup is the group of all of a link's ranks.
func NewGroup(l Link) Group {
	return &group{link: l, ranks: span(l.Size()), me: l.Rank(), sent: new(int64)}
}

// group implements Group; all of its calls are one exchange.
type group struct {
	link  Link
	ranks []int // of the link
	me    int   // this rank's place among them
	sent  *int64
}

func (g *group) Rank() int     { return g.me }
func (g *group) Size() int     { return len(g.ranks) }
func (g *group) Abort(e error) { g.link.Abort(e) }
func (g *group) Sent() int64   { return *g.sent }
func (g *group) Close() error  { return g.link.Close() }

func (g *group) Sub(ranks []int) Group {
	s := &group{link: g.link, me: slices.Index(ranks, g.me), sent: g.sent}
	if s.me < 0 {
		panic("parallel: a subgroup without this rank")
	}
	for _, r := range ranks {
		s.ranks = append(s.ranks, g.ranks[r])
	}
	return s
}

func (g *group) AllToAll(recv, send [][]byte) error {
	if len(recv) != len(g.ranks) || len(send) != len(g.ranks) {
		panic("parallel: need a part for every rank")
	}
	if len(recv[g.me]) != len(send[g.me]) {
		panic("parallel: a rank expects of itself what it does not send")
	}
	copy(recv[g.me], send[g.me])
	if len(g.ranks) == 1 {
		return nil
	}
	for r, part := range send {
		if r != g.me {
			*g.sent += int64(len(part))
		}
	}
	return g.link.Exchange(others(g.ranks, g.me), others(recv, g.me), others(send, g.me))
}

func (g *group) AllGather(recv [][]byte, send []byte) error {
	return g.AllToAll(recv, slices.Repeat([][]byte{send}, len(g.ranks)))
}

func (g *group) Broadcast(data []byte, from int) error {
	recv, send := make([][]byte, len(g.ranks)), make([][]byte, len(g.ranks))
	if g.me == from {
		for r := range send {
			send[r] = data
		}
		recv[from] = data
	} else {
		recv[from] = data
	}
	return g.AllToAll(recv, send)
}

func (g *group) Barrier() error {
	recv := make([][]byte, len(g.ranks))
	for r := range recv {
		recv[r] = []byte{0}
	}
	return g.AllGather(recv, []byte{0})
}

// others is v without element i.
func others[T any](v []T, i int) []T { return slices.Concat(v[:i], v[i+1:]) }

// span is 0 to n-1.
func span(n int) []int {
	v := make([]int, n)
	for i := range v {
		v[i] = i
	}
	return v
}

// allToAll sends send[r] to rank r and gives what each rank sent here, of which counts says how many elements.
func allToAll[T any](g Group, send [][]T, counts []int) ([][]T, error) {
	recv := make([][]T, len(counts))
	for r, n := range counts {
		recv[r] = make([]T, n)
	}
	return recv, allToAllInto(g, recv, send)
}

// allToAllInto is allToAll into the caller's memory.
func allToAllInto[T any](g Group, recv, send [][]T) error {
	to, from := make([][]byte, len(recv)), make([][]byte, len(recv))
	for r := range recv {
		to[r], from[r] = host.Bytes(send[r]), host.Bytes(recv[r])
	}
	return g.AllToAll(from, to)
}

// allGather gives every rank's elements, of which counts says how many.
func allGather[T any](g Group, send []T, counts []int) ([][]T, error) {
	return allToAll(g, slices.Repeat([][]T{send}, len(counts)), counts)
}

// exchangeCounts sends counts[r], as many numbers for every rank, to rank r, and gives those that came from each.
func exchangeCounts(g Group, counts [][]int32) ([][]int32, error) {
	return allToAll(g, counts, slices.Repeat([]int{len(counts[0])}, g.Size()))
}

// Failed is the error of a call that a rank has refused, or of an exchange that ended because one failed, left or did not come.
type Failed struct {
	Rank int // the one that says so
	Text string
}

func (e *Failed) Error() string { return fmt.Sprintf("rank %d: %s", e.Rank, e.Text) }
