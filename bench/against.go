// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bench

import "slices"

// Against is results of others, to set beside one's own.
type Against struct {
	By    []string // who they are of, in the order of the file: rival=NAME or backend=NAME
	times map[string]map[Case][]float64
}

// NewAgainst sorts results by who made them.
func NewAgainst(results []*Result) *Against {
	a := &Against{times: map[string]map[Case][]float64{}}
	for _, r := range results {
		if a.times[r.By] == nil {
			a.By, a.times[r.By] = append(a.By, r.By), map[Case][]float64{}
		}
		c := r.rivalOf()
		a.times[r.By][c] = append(a.times[r.By][c], r.Median)
	}
	return a
}

// Seconds is how long they took for the same shape, pass and tokens: the median of the lines; 0 where there is none.
func (a *Against) Seconds(by string, c Case) float64 {
	times := slices.Sorted(slices.Values(a.times[by][c.rivalOf()]))
	if n := len(times); n > 0 {
		return (times[(n-1)/2] + times[n/2]) / 2
	}
	return 0
}
