// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/samebit/samebit/parallel"
)

// exercise has a group do everything that a group does, with parts of uneven sizes.
func exercise(g parallel.Group) error {
	me, n := g.Rank(), g.Size()
	data := func(from, to, size int) []byte { return bytes.Repeat([]byte{byte(1 + 16*from + to)}, size) }
	check := func(what string, have, want []byte) error {
		if !bytes.Equal(have, want) {
			return fmt.Errorf("%s on rank %d: %x, want %x", what, me, have, want)
		}
		return nil
	}
	for round := range 20 {
		send, recv := make([][]byte, n), make([][]byte, n)
		for r := range n {
			send[r], recv[r] = data(me, r, (me*3+r*round)%7), make([]byte, (r*3+me*round)%7)
		}
		if err := g.AllToAll(recv, send); err != nil {
			return err
		}
		var errs []error
		for r := range n {
			errs = append(errs, check("all to all", recv[r], data(r, me, len(recv[r]))))
			recv[r] = make([]byte, r+round)
		}
		errs = append(errs, g.AllGather(recv, data(me, 0, me+round)))
		for r := range n {
			errs = append(errs, check("all gather", recv[r], data(r, 0, r+round)))
		}
		one := make([]byte, 9)
		if me == round%n {
			one = data(me, 1, 9)
		}
		errs = append(errs, g.Broadcast(one, round%n), check("broadcast", one, data(round%n, 1, 9)), g.Barrier())
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

func TestLocal(t *testing.T) {
	for n := 1; n <= 6; n++ {
		errs := onRanks(parallel.Local(n), func(i int, g parallel.Group) error {
			if err := exercise(g); err != nil {
				return err
			}
			var sub []int // those of the same parity, the last first
			for r := n - 1; r >= 0; r-- {
				if r%2 == i%2 {
					sub = append(sub, r)
				}
			}
			s := g.Sub(sub)
			if sub[s.Rank()] != i {
				return fmt.Errorf("rank %d is number %d of %v", i, s.Rank(), sub)
			}
			return exercise(s)
		})
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}

// A message of another length than is due is an error on every rank, shorter or longer.
func TestLocalLengths(t *testing.T) {
	for _, n := range []int{7, 9} {
		everyRank(t, fmt.Sprintf("%d bytes for 8", n), onRanks(parallel.Local(2), func(i int, g parallel.Group) error {
			send, recv := make([]byte, 8), [][]byte{make([]byte, 8), make([]byte, 8)}
			if i == 1 {
				send, recv[1] = make([]byte, n), make([]byte, n)
			}
			return g.AllGather(recv, send)
		}), fmt.Sprintf("rank 1 sent %d bytes where 8 were due", n))
	}
}

// What a rank sends itself costs nothing.
func TestSent(t *testing.T) {
	errs := onRanks(parallel.Local(3), func(i int, g parallel.Group) error {
		send := [][]byte{make([]byte, 10), make([]byte, 10), make([]byte, 10)}
		recv := [][]byte{make([]byte, 10), make([]byte, 10), make([]byte, 10)}
		if err := g.AllToAll(recv, send); err != nil {
			return err
		}
		if g.Sent() != 20 {
			return fmt.Errorf("sent %d bytes: want 20", g.Sent())
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
