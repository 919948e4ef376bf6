// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"strings"
	"sync"

	"github.com/samebit/samebit/internal/testgen"
	"github.com/samebit/samebit/parallel"
)

// VolumeRecord is how many bytes a token costs between ranks: what all of them send to others, over the tokens.
type VolumeRecord struct {
	Forward  float64            `json:"forward"`
	Backward float64            `json:"backward"`
	Textbook float64            `json:"textbook"` // of the forward, and again of the backward: see parallel.Volume
	Of       map[string]float64 `json:"of"`       // by what is sent
}

// String says it in a line.
func (v *VolumeRecord) String() string {
	var parts []string
	for _, what := range []string{"x", "h", "rows", "y", "x again", "dy", "dgate", "dup", "dx rows", "dx", "fold"} {
		if n := v.Of[what]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %.0f", what, n))
		}
	}
	return fmt.Sprintf("bytes between ranks a token: forward %.0f, backward %.0f (%s); the textbook's, which adds on the way: %.0f and as many",
		v.Forward, v.Backward, strings.Join(parts, ", "), v.Textbook)
}

// volume measures a forward and a backward of n tokens; nil where there are no ranks, or they fail, which the cases say.
func (s *Subject) volume(n int) *VolumeRecord {
	if s.Grid == nil {
		return nil
	}
	before := make([]parallel.Volume, len(s.Ranks))
	for i, m := range s.Ranks {
		before[i] = m.Rank.Volume()
	}
	w := work{x: testgen.Tokens(n, s.Shape.Hidden, seed), dy: testgen.Upstream(n, s.Shape.Hidden, seed), gradients: true}
	if _, err := runAll(s.Ranks, w); err != nil {
		return nil
	}
	sums, errs := make([]parallel.Volume, len(s.Ranks)), make([]error, len(s.Ranks))
	var group sync.WaitGroup
	for i, m := range s.Ranks {
		group.Go(func() { sums[i], errs[i] = m.Rank.SumVolumes(m.Rank.Volume().Minus(before[i])) })
	}
	group.Wait()
	if errs[0] != nil {
		return nil
	}
	v, per := sums[0], func(n64 int64) float64 { return float64(n64) / float64(n) }
	r := &VolumeRecord{Forward: per(v.Forward()), Backward: per(v.Backward()), Textbook: per(v.Textbook(*s.Grid, n, s.Shape.Hidden)), Of: map[string]float64{}}
	for what, bytes := range v {
		r.Of[what] = per(bytes)
	}
	return r
}
