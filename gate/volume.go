// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"github.com/samebit/samebit/internal/testgen"
	"github.com/samebit/samebit/parallel"
)

// volume measures a forward and a backward of n tokens; nil where there are no ranks, or they fail, which the cases say.
func (s *Subject) volume(n int) *parallel.PerToken {
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
	sums := make([]parallel.Volume, len(s.Ranks))
	err := parallel.Together(s.ranks(), func(i int, r *parallel.Rank) (err error) {
		sums[i], err = r.SumVolumes(r.Volume().Minus(before[i]))
		return err
	})
	if err != nil {
		return nil
	}
	return sums[0].PerToken(*s.Grid, n, s.Shape.Hidden)
}
