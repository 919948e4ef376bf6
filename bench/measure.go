// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// Budget is how long a case is timed.
type Budget struct {
	Count int           // runs; 0 for as many as Time takes, and at least leastRuns
	Time  time.Duration // of the timed runs together
}

const (
	leastRuns = 5
	warmUp    = 10 // a warm-up is one run at least, and this part of Time
)

// garbage is how many per cent of what lives may become garbage before the collector runs, that a peak of memory shows what
// the work needs.
const garbage = 10

// Measure times a case. tick, which may be nil, is told how far it is.
func (s *Subject) Measure(p Pass, tokens int, b Budget, tick func(done, total int64)) (*Result, error) {
	if b.Count < 0 || b.Time < 0 {
		return nil, fmt.Errorf("found %d runs in %v: need at least 0", b.Count, b.Time)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(garbage))
	if p != s.gradsOf { // of a pass before: no part of this one's memory
		s.dropGradients()
	}
	runtime.GC() // twice, since what is pooled outlives one collection
	debug.FreeOSMemory()
	resetPeak()
	run, err := s.Runner(p, tokens)
	if err != nil {
		return nil, err
	}
	for warm := time.Duration(0); ; {
		r, err := run()
		if err != nil {
			return nil, err
		}
		if warm += r.Wall; b.Count > 0 || warm > b.Time/warmUp {
			break
		}
	}
	var spent time.Duration
	var runs []time.Duration
	var experts float64
	before, volume := allocated(), s.volume()
	for done := false; !done; {
		r, err := run()
		if err != nil {
			return nil, err
		}
		runs, experts, spent = append(runs, r.Time), experts+r.Experts, spent+r.Time
		part, all := int64(len(runs)), int64(b.Count)
		if b.Count == 0 { // whichever of the two is behind
			part, all = min(int64(100*spent/max(b.Time, 1)), 100*part/leastRuns), 100
		}
		if tick != nil {
			tick(min(part, all), all)
		}
		done = part >= all
	}
	n := float64(len(runs))
	perRun := float64(allocated()-before) / n
	result := &Result{Case: s.Case(p, tokens), Work: workOf(s.shape(), p, tokens, experts/n), Runs: len(runs)}
	result.Median, result.Min, result.Max = spread(runs)
	result.Memory = s.memory(p)
	result.Memory.Allocated = int64(perRun)
	if s.grid != nil {
		if result.Sent, err = s.sent(volume, tokens*len(runs)); err != nil {
			return nil, err
		}
		result.Between, result.PerRank = result.Sent.All, result.TokensPerSecond()/float64(s.grid.Ranks())
	}
	return result, nil
}

// spread is the median, the least and the largest, in seconds.
func spread(runs []time.Duration) (median, least, most float64) {
	slices.Sort(runs)
	n := len(runs)
	return (runs[(n-1)/2] + runs[n/2]).Seconds() / 2, runs[0].Seconds(), runs[n-1].Seconds()
}

// allocated is how many bytes Go's heap ever gave.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
