// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/samebit/samebit/internal/cpu/tcdot"
)

// team is workers that run one stage after another. The caller is worker 0; the others are goroutines that look out for the
// next stage for a moment before they sleep, since stages follow each other closely and one token's are over sooner than
// a sleeper wakes.
type team struct {
	workers []*worker
	do      func(w *worker) // nil tells the goroutines to end
	stage   atomic.Uint32   // counts up once do is set
	working atomic.Int32    // goroutines that have not finished the stage
	panics  chan any        // of goroutines, for the caller
	bells   []bell          // of the workers
}

// bell wakes its owner, who waits for something that others make true.
type bell struct {
	asleep atomic.Bool
	ring   chan struct{}
}

// patience is how long one looks out before going to sleep.
const patience = 50 * time.Microsecond

// wait returns once done says so, which becomes true before wake is called.
func (b *bell) wait(done func() bool) {
	for range 200 {
		if done() {
			return
		}
	}
	for start := time.Now(); time.Since(start) < patience; {
		runtime.Gosched() // others may have no other processor
		if done() {
			return
		}
	}
	for !done() {
		b.asleep.Store(true)
		if done() && b.asleep.CompareAndSwap(true, false) {
			return
		}
		<-b.ring
	}
}

func (b *bell) wake() {
	if b.asleep.CompareAndSwap(true, false) {
		b.ring <- struct{}{}
	}
}

func newTeam(size int, k kernels) *team {
	t := &team{bells: make([]bell, size), panics: make(chan any, size)}
	for i := range size {
		t.bells[i].ring = make(chan struct{}, 1)
		t.workers = append(t.workers, &worker{index: i, Worker: tcdot.NewWorker(k.isa)})
		if i > 0 {
			go t.serve(i)
		}
	}
	return t
}

// run has every worker do its part. A panic of any of them is the caller's, once all have ended.
func (t *team) run(do func(w *worker)) {
	t.begin(do)
	t.part(0)
	t.bells[0].wait(func() bool { return t.working.Load() == 0 })
	t.do = nil // an idle team keeps no gradients in memory
	select {
	case p := <-t.panics:
		for len(t.panics) > 0 {
			<-t.panics
		}
		panic(p)
	default:
	}
}

// part is worker i's. A fault of mapped memory, whose file may have been cut short, is a panic too.
func (t *team) part(i int) {
	defer func() {
		if p := recover(); p != nil {
			t.panics <- p
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	t.do(t.workers[i])
}

// stop ends the goroutines.
func (t *team) stop() { t.begin(nil) }

func (t *team) begin(do func(w *worker)) {
	t.do = do
	t.working.Store(int32(len(t.workers) - 1))
	t.stage.Add(1)
	for i := range t.bells[1:] {
		t.bells[1+i].wake()
	}
}

// serve is the goroutine of worker i.
func (t *team) serve(i int) {
	for stage := uint32(1); ; stage++ {
		t.bells[i].wait(func() bool { return t.stage.Load() == stage })
		if t.do == nil {
			return
		}
		t.part(i)
		if t.working.Add(-1) == 0 {
			t.bells[0].wake()
		}
	}
}
