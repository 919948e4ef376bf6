// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package nccl

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/samebit/samebit/internal/cuda/driver"
	"github.com/samebit/samebit/internal/patience"
	"github.com/samebit/samebit/parallel"
)

// gpus is how many the machine has; without one, or without NCCL, the test is skipped, unless SAMEBIT_REQUIRE names nccl.
func gpus(t *testing.T) int {
	t.Helper()
	_, err := load()
	for n := 0; err == nil; n++ {
		gpu, e := driver.Open(n)
		if errors.Is(e, driver.ErrNoDevice) && n > 0 {
			return n
		}
		if err = e; err == nil {
			err = gpu.Close()
		}
	}
	if strings.Contains(os.Getenv("SAMEBIT_REQUIRE"), "nccl") {
		t.Fatalf("SAMEBIT_REQUIRE names nccl: %v", err)
	}
	t.Skip(err)
	return 0
}

// The machine's own NCCL, a rank on each GPU: they come together, move bytes of uneven sizes, also each to itself, and leave.
func TestMachine(t *testing.T) {
	n := gpus(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	errs := make([]error, n)
	var ranks sync.WaitGroup
	for i := range n {
		ranks.Go(func() {
			w, err := Open(Place{Rank: i, Size: n, GPU: i, Address: address, Token: "a word"}, patience.Defaults())
			if err == nil {
				err = errors.Join(moves(w), w.Close())
			}
			errs[i] = err
		})
	}
	ranks.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("rank %d of %d: %v", i, n, err)
		}
	}
}

// moves exchanges bytes that tell which way they went: nothing, few, and more than there was room for.
func moves(w *World) error {
	me, n := w.Rank(), w.Size()
	pattern := func(from, to, round int) []byte {
		b := make([]byte, []int{0, 1, 17, 4096, 3 << 20, 65}[(round+from+2*to)%6])
		for i := range b {
			b[i] = byte(i*7 + i>>8 + 31*from + 17*to + round)
		}
		return b
	}
	everyone := make([]int, n)
	for r := range everyone {
		everyone[r] = r
	}
	for round := range 12 {
		send, recv := make([][]byte, n), make([][]byte, n)
		for r := range n {
			send[r], recv[r] = pattern(me, r, round), make([]byte, len(pattern(r, me, round)))
		}
		if err := w.Exchange(everyone, recv, send); err != nil {
			return err
		}
		for r := range n {
			if !bytes.Equal(recv[r], pattern(r, me, round)) {
				return fmt.Errorf("round %d: other bytes from rank %d than it sent", round, r)
			}
		}
	}
	rank, err := parallel.Join(parallel.NewGroup(w), parallel.Grid{TP: 1, EP: n})
	if err != nil {
		return err
	}
	told, err := rank.Tell(fmt.Sprint("rank ", me))
	for r, text := range told {
		if want := fmt.Sprint("rank ", r); err == nil && text != want {
			err = fmt.Errorf("rank %d tells %q: want %q", r, text, want)
		}
	}
	return err
}
