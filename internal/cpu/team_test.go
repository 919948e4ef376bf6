// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"runtime"
	"testing"
	"time"
)

// What a stage worked on is garbage once it is over, though its team waits for another.
func TestTeamLetsGo(t *testing.T) {
	c := newCrew(3, sets()[0])
	defer c.close()
	gone := make(chan struct{})
	func() {
		memory := new([1 << 20]byte)
		runtime.AddCleanup(memory, func(done chan struct{}) { close(done) }, gone)
		c.each(func(w *worker) { memory[w.index]++ })
	}()
	for range 100 {
		runtime.GC()
		select {
		case <-gone:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Error("an idle team holds what its last stage worked on")
}
