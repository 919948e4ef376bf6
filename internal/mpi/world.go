// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package mpi

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/samebit/samebit/internal/patience"
)

// World is all ranks that were started together. It carries bytes between them: parallel.Link.
type World struct {
	lib        *library
	rank, size int
	limits     patience.Limits

	mu      sync.Mutex // the library is called by one at a time
	control []control  // of each rank; nothing of this one's
	err     error      // why all exchanges end
	stuck   []request  // transfers that were given up: the library may still write to them
	leaving bool
	ending  chan struct{}
	watched sync.WaitGroup
}

const (
	piece   = 1 << 30                // bytes of one message: the library counts in 32 bits
	glance  = 100 * time.Millisecond // between two looks at what others say of themselves
	parting = 3 * time.Second        // for the others to leave when one has failed
)

// Open joins the world. It may be called once in a process.
func Open(limits patience.Limits) (*World, error) {
	lib, err := load()
	if err != nil {
		return nil, err
	}
	w := &World{lib: lib, limits: limits, ending: make(chan struct{})}
	provided, rank, size := new(int32), new(int32), new(int32)
	if err := lib.do("init", initThread, 0, 0, uintptr(lib.serialized), uintptr(unsafe.Pointer(provided))); err != nil {
		return nil, err
	}
	err = errors.Join(
		lib.do("error handler", commSetErrhandler, lib.world, lib.errorReturn),
		lib.do("rank", commRank, lib.world, uintptr(unsafe.Pointer(rank))),
		lib.do("size", commSize, lib.world, uintptr(unsafe.Pointer(size))),
	)
	if err != nil {
		return nil, err
	}
	if *provided < lib.serialized {
		return nil, fmt.Errorf("mpi: %s allows calls of thread level %d: need %d (serialized)", lib.version(), *provided, lib.serialized)
	}
	w.rank, w.size = int(*rank), int(*size)
	if err := checkLauncher(lib.version(), w.rank, w.size); err != nil {
		if w.size == 1 { // alone, it can leave
			err = errors.Join(err, lib.do("finalize", finalize))
		}
		return nil, err
	}
	if err := w.watch(); err != nil {
		return nil, err
	}
	return w, nil
}

// Rank is this process's number among Size.
func (w *World) Rank() int { return w.rank }

// Size is how many processes there are.
func (w *World) Size() int { return w.size }

// Library is what the library calls itself.
func (w *World) Library() string { return w.lib.version() }

// Exchange sends send[i] to rank peers[i] and receives recv[i] from it.
func (w *World) Exchange(peers []int, recv, send [][]byte) error {
	var pending []request
	w.mu.Lock()
	defer w.mu.Unlock()
	begin := func(receives bool, peer int, data []byte) error {
		for before := (*probe)(nil); ; {
			part := data[:min(len(data), piece)]
			var r request
			if receives {
				r = w.lib.expect(peer, part, before)
				before = r.probe
			} else {
				var err error
				if r, err = w.lib.start(false, peer, dataTag, part); err != nil {
					return err
				}
			}
			pending = append(pending, r)
			if data = data[len(part):]; len(data) == 0 {
				return nil
			}
		}
	}
	err := w.err
	for i := 0; i < len(peers) && err == nil; i++ {
		err = begin(true, peers[i], recv[i])
	}
	for i := 0; i < len(peers) && err == nil; i++ {
		err = begin(false, peers[i], send[i])
	}
	if err == nil {
		pending, err = w.wait(pending)
	}
	if len(pending) > 0 { // with their memory, which is kept
		w.stuck = append(w.stuck, pending...)
		w.failed(err)
		return w.err
	}
	return err
}

// wait returns when all transfers are over, or with those that are not.
func (w *World) wait(pending []request) ([]request, error) {
	idling := patience.Begin(w.limits.Call)
	for idle := 0; ; idle++ {
		rest := pending[:0]
		for i, r := range pending {
			done, n, err := w.lib.done(r)
			if err == nil && done && r.recv && n != len(r.data) {
				err = fmt.Errorf("rank %d sent %d bytes where %d were due: need the same calls and the same flags on every rank", r.peer, n, len(r.data))
			}
			if err != nil {
				return append(rest, pending[i:]...), err
			}
			if done {
				idle = 0
				idling.Again()
			} else {
				rest = append(rest, r)
			}
		}
		if pending = rest; len(pending) == 0 {
			return nil, nil
		}
		err := w.hopeless(pending)
		if err == nil && idling.Over() {
			err = fmt.Errorf("rank %d lives, but has not called what this rank has in %v: need the same calls on every rank",
				pending[0].peer, w.limits.Call)
		}
		if err != nil {
			return pending, err
		}
		w.mu.Unlock()
		pause(idle)
		w.mu.Lock()
	}
}

// pause waits the longer, the longer nothing has happened.
func pause(idle int) {
	switch {
	case idle < 20:
		runtime.Gosched()
	case idle < 200:
		time.Sleep(20 * time.Microsecond)
	default:
		time.Sleep(time.Millisecond)
	}
}

// hopeless says why transfers will never be over.
func (w *World) hopeless(pending []request) error {
	if w.err != nil {
		return w.err
	}
	for _, r := range pending {
		// What it sent before it left may still be under way.
		if c := &w.control[r.peer]; c.left && time.Since(c.heard) > 2*time.Second {
			return fmt.Errorf("rank %d has left: need the same calls on every rank", r.peer)
		}
	}
	return nil
}
