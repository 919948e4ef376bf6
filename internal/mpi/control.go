// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package mpi

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/samebit/samebit/internal/patience"
)

// What ranks say of themselves.
const (
	alive = 'a'
	fails = 'f' // and why
	bye   = 'b'
)

const words = 512 // bytes of a message of control

// control is what passes between this rank and another beside the data.
type control struct {
	in    request
	out   []request // messages that are not sent yet
	heard time.Time
	quiet patience.Wait // since then
	left  bool
}

// watch begins to listen to all ranks, and to give them signs of life.
func (w *World) watch() error {
	w.control = make([]control, w.size)
	for r := range w.control {
		w.control[r].heard, w.control[r].quiet = time.Now(), patience.Begin(w.limits.Silence)
		if r != w.rank {
			if err := w.listen(r); err != nil {
				return err
			}
		}
	}
	w.watched.Go(func() {
		next := time.Now()
		for {
			w.mu.Lock()
			w.hear()
			if now := time.Now(); now.After(next) {
				w.tell(alive, "")
				next = now.Add(w.limits.Heartbeat)
			}
			w.mu.Unlock()
			select {
			case <-w.ending:
				return
			case <-time.After(glance):
			}
		}
	})
	return nil
}

// listen waits for a rank's next message.
func (w *World) listen(r int) (err error) {
	w.control[r].in, err = w.lib.start(true, r, controlTag, make([]byte, words))
	return err
}

// hear takes in what the ranks have said.
func (w *World) hear() {
	for r := range w.control {
		c := &w.control[r]
		for r != w.rank && !c.left {
			done, _, err := w.lib.done(c.in)
			if err != nil {
				w.failed(err)
				return
			}
			if !done {
				if c.quiet.Over() {
					w.failed(fmt.Errorf("no sign of life of rank %d in %v", r, w.limits.Silence))
				}
				break
			}
			c.heard = time.Now()
			c.quiet.Again()
			switch text := cString(c.in.data[1:]); c.in.data[0] {
			case bye:
				c.left = true
				continue
			case fails:
				if w.err == nil {
					w.err = errors.New(text)
				}
			}
			if err := w.listen(r); err != nil {
				w.failed(err)
				return
			}
		}
	}
}

// tell sends all ranks a message. A sign of life that would wait for another message is not needed.
func (w *World) tell(kind byte, text string) {
	message := make([]byte, words)
	message[0] = kind
	copy(message[1:words-1], text)
	for r := range w.control {
		c := &w.control[r]
		if r == w.rank || w.leaving && kind != bye { // who has left listens until the others leave; nobody does after a bye
			continue
		}
		if kind == alive && !w.sent(c) {
			continue
		}
		if out, err := w.lib.start(false, r, controlTag, message); err == nil {
			c.out = append(c.out, out)
		}
	}
}

// sent says whether all messages to a rank are sent.
func (w *World) sent(c *control) bool {
	c.out = slices.DeleteFunc(c.out, func(r request) bool {
		done, _, err := w.lib.done(r)
		return done || err != nil
	})
	return len(c.out) == 0
}

// failed ends all exchanges, of the other ranks too.
func (w *World) failed(err error) {
	if w.err == nil {
		w.err = fmt.Errorf("rank %d: %w", w.rank, err)
		w.tell(fails, w.err.Error())
	}
}

// Abort ends the exchanges of all ranks with this rank's error.
func (w *World) Abort(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed(err)
}

// Close leaves the world: it waits for the others to leave too, as long as they live, since the library can only be left by all
// together, and a launcher kills the others of one that ends without. Where a rank has failed or is gone it waits a moment, and gives
// that error.
func (w *World) Close() error {
	w.mu.Lock()
	w.leaving = true
	w.tell(bye, "")
	for failing := patience.Begin(parting); !w.alone(); {
		if w.err == nil {
			failing.Again()
		} else if failing.Over() {
			break
		}
		w.hear()
		w.mu.Unlock()
		time.Sleep(time.Millisecond)
		w.mu.Lock()
	}
	clean := w.alone() && len(w.stuck) == 0
	w.mu.Unlock()
	close(w.ending)
	w.watched.Wait()
	if !clean { // the library would wait for ever
		return w.err
	}
	left := make(chan error, 1)
	go func() { left <- w.lib.do("finalize", finalize) }()
	look := time.NewTicker(glance)
	defer look.Stop()
	for waits := patience.Begin(w.limits.Meet); ; {
		select {
		case err := <-left:
			return err
		case <-look.C:
			if waits.Over() { // the library has no limit of its own
				return fmt.Errorf("rank %d: all ranks have said that they leave, and have not in %v", w.rank, w.limits.Meet)
			}
		}
	}
}

// alone says that all others have left, and have been told what was to be told.
func (w *World) alone() bool {
	for r := range w.control {
		c := &w.control[r]
		if r == w.rank {
			continue
		}
		if !c.left || !w.sent(c) {
			return false
		}
	}
	return true
}
