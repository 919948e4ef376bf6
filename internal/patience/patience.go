// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package patience says how long ranks wait for each other, whatever carries their bytes.
package patience

import "time"

// Limits are what ranks wait for, and how long.
type Limits struct {
	Call      time.Duration // another rank's call of what this one has called, while that one lives
	Meet      time.Duration // all processes to come together, and the library to part them
	Silence   time.Duration // without a sign of life a process is taken for dead, or for one that stands still
	Heartbeat time.Duration // between two signs of life
}

// Defaults are the limits of who asks for no others.
func Defaults() Limits {
	return Limits{Call: 10 * time.Minute, Meet: time.Minute, Silence: 15 * time.Second, Heartbeat: 2 * time.Second}
}

// Wait is a wait with a limit, which is looked at now and then. Where far more time than a look has passed between two, this process
// was stopped, and perhaps the others with it, as Slurm suspends a job: that time does not count.
type Wait struct {
	limit, passed time.Duration
	looked        time.Time
}

const look = time.Second // the most that counts between two looks

// Begin begins to wait.
func Begin(limit time.Duration) Wait { return Wait{limit: limit, looked: time.Now()} }

// Over looks whether the limit has passed.
func (w *Wait) Over() bool {
	now := time.Now()
	w.passed += min(now.Sub(w.looked), look)
	w.looked = now
	return w.passed > w.limit
}

// Again begins again.
func (w *Wait) Again() { *w = Begin(w.limit) }

// Every is how long to sleep between two looks.
func (w *Wait) Every() time.Duration { return min(look/2, max(w.limit/4, time.Millisecond)) }
