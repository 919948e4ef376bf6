// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package nccl

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/samebit/samebit/internal/cuda/driver"
	"github.com/samebit/samebit/internal/patience"
)

// World is all ranks that were started together. It carries bytes between them: parallel.Link. What is sent is the host's, and goes
// by way of the GPUs.
type World struct {
	*meeting
	gpu    *driver.Device
	lib    library
	comm   comm
	stream driver.Stream

	calls sync.Mutex // exchanges come one at a time
	room  [2]memory  // for what is received and what is sent
	dead  bool       // the communicator was aborted
}

// memory is some of the GPU's.
type memory struct {
	at   driver.Pointer
	room int
}

// Open joins the world at a place.
func Open(p Place, limits patience.Limits) (*World, error) {
	gpu, err := driver.Open(p.GPU)
	if err != nil {
		return nil, fmt.Errorf("nccl: rank %d, number %d of its machine, has no GPU of its own: %w", p.Rank, p.Local, err)
	}
	lib, err := load()
	if err != nil {
		gpu.Close()
		return nil, err
	}
	return openOn(p, limits, gpu, lib)
}

// openOn is Open with a library on a GPU, which it takes over.
func openOn(p Place, limits patience.Limits, gpu *driver.Device, lib library) (*World, error) {
	w := &World{gpu: gpu, lib: lib}
	var id []byte
	var err error
	if w.meeting, id, err = meet(p, limits, lib.uniqueID); err != nil {
		return nil, errors.Join(err, gpu.Close())
	}
	if w.stream, err = gpu.NewStream(); err != nil {
		w.fail(err)
		w.leave()
		return nil, errors.Join(err, gpu.Close())
	}
	opened := make(chan error, 1)
	go func() { // NCCL waits for all ranks, also for one that will never come
		opened <- gpu.Current(func() (err error) {
			w.comm, err = lib.open(p.Size, id, p.Rank)
			return err
		})
	}()
	everyone := make([]int, p.Size)
	for r := range everyone {
		everyone[r] = r
	}
	err = w.watch(opened, "joining the communicator", func() error { return w.missing(everyone) })
	if err == nil {
		return w, nil
	}
	w.fail(err)
	w.leave()
	err = w.failure()
	select {
	case e := <-opened:
		if e == nil {
			w.drop()
		}
		return nil, errors.Join(err, gpu.FreeStream(w.stream), gpu.Close())
	case <-time.After(parting): // NCCL still has the GPU
		return nil, err
	}
}

// Rank is this process's number among Size.
func (w *World) Rank() int { return w.Place.Rank }

// Size is how many processes there are.
func (w *World) Size() int { return w.Place.Size }

// Exchange sends send[i] to rank peers[i] and receives recv[i] from it.
func (w *World) Exchange(peers []int, recv, send [][]byte) error {
	w.calls.Lock()
	defer w.calls.Unlock()
	if err := w.failure(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- w.exchange(peers, recv, send) }()
	err := w.watch(done, "an exchange", func() error { return errors.Join(w.missing(peers), w.lib.failed(w.comm)) })
	if err == nil {
		return nil
	}
	w.fail(err)
	w.drop()
	select { // what has ended has no more use for the caller's memory
	case <-done:
	case <-time.After(w.limits.Silence):
	}
	return w.failure()
}

// watch waits until something is done, unless a rank fails or leaves meanwhile, or does not call the same for too long, of which
// NCCL does not tell: then it would never be over.
func (w *World) watch(done chan error, what string, wrong func() error) error {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	waits := patience.Begin(w.limits.Call)
	for {
		var err error
		select {
		case err := <-done:
			done <- err // for who asks again
			return err
		case <-w.over:
			err = w.failure()
		case <-look.C:
			if err = wrong(); err == nil && waits.Over() {
				err = fmt.Errorf("%s is not over in %v, though all ranks live: need the same calls on every rank", what, w.limits.Call)
			}
		}
		if err != nil {
			return err
		}
	}
}

func (w *World) exchange(peers []int, recv, send [][]byte) error {
	in, err := w.reserve(0, recv)
	if err != nil {
		return err
	}
	out, err := w.reserve(1, send)
	if err != nil {
		return err
	}
	for i, data := range send {
		if err := w.gpu.ToDevice(out[i], data, w.stream); err != nil {
			return err
		}
	}
	err = w.gpu.Current(func() error {
		return w.lib.group(func() error {
			var errs []error
			for i, peer := range peers {
				if len(send[i]) > 0 {
					errs = append(errs, w.lib.send(w.comm, out[i], len(send[i]), peer, w.stream))
				}
				if len(recv[i]) > 0 {
					errs = append(errs, w.lib.receive(w.comm, in[i], len(recv[i]), peer, w.stream))
				}
			}
			return errors.Join(errs...)
		})
	})
	for i, data := range recv {
		if err == nil {
			err = w.gpu.ToHost(data, in[i], w.stream)
		}
	}
	if err == nil {
		err = w.gpu.Wait(w.stream)
	}
	return err
}

// reserve gives each part a place, at multiples of 16 bytes.
func (w *World) reserve(which int, parts [][]byte) ([]driver.Pointer, error) {
	total := 0
	for _, p := range parts {
		total += (len(p) + 15) / 16 * 16
	}
	m := &w.room[which]
	if total > m.room {
		if m.room > 0 {
			if err := w.gpu.Free(m.at); err != nil {
				return nil, err
			}
		}
		*m = memory{}
		at, err := w.gpu.Alloc(total + total/4)
		if err != nil {
			return nil, err
		}
		*m = memory{at, total + total/4}
	}
	places, at := make([]driver.Pointer, len(parts)), m.at
	for i, p := range parts {
		places[i] = at
		at += driver.Pointer((len(p) + 15) / 16 * 16)
	}
	return places, nil
}

func (w *World) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// drop ends what the communicator still does, for good.
func (w *World) drop() {
	if !w.dead {
		w.dead = true
		w.gpu.Current(func() error { return w.lib.abort(w.comm) })
	}
}

// Abort ends the exchanges of all ranks with this rank's error.
func (w *World) Abort(err error) { w.fail(err) }

// Close leaves the world.
func (w *World) Close() error {
	w.leave()
	w.calls.Lock()
	defer w.calls.Unlock()
	var errs []error
	if !w.dead && w.failure() == nil {
		errs = append(errs, w.gpu.Current(func() error { return w.lib.close(w.comm) }))
	} else {
		w.drop()
	}
	for _, m := range w.room {
		if m.room > 0 {
			errs = append(errs, w.gpu.Free(m.at))
		}
	}
	errs = append(errs, w.gpu.FreeStream(w.stream), w.gpu.Close())
	return errors.Join(errs...)
}
