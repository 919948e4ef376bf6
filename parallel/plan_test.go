// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/parallel"
)

// The ranks' shares are disjoint and everything, whatever the numbers, and those of a width begin where a tree's blocks do.
func TestShares(t *testing.T) {
	for n := 1; n <= 70; n++ {
		for ranks := 1; ranks <= min(n, 17); ranks++ {
			g := parallel.Grid{TP: ranks, EP: ranks}
			for name, share := range map[string]func(int) contract.Range{
				"experts": func(i int) contract.Range { return g.Experts(i, n) },
				"outputs": func(i int) contract.Range { return g.Outputs(i, n) },
				"inner":   func(i int) contract.Range { return g.Inner(i, n) },
			} {
				at, most := 0, 0
				for i := range ranks {
					r := share(i)
					if r.From != at || r.To < at {
						t.Fatalf("%s, %d over %d ranks: rank %d has %v, want it to begin at %d", name, n, ranks, i, r, at)
					}
					at, most = r.To, max(most, r.Len())
				}
				even := (n + ranks - 1) / ranks
				if at != n || 8*most > 9*even {
					t.Fatalf("%s, %d over %d ranks: up to %d, the largest share is %d of %d", name, n, ranks, at, most, even)
				}
			}
		}
	}
}

// What a rank sums of a tree's terms by its blocks finishes the tree, in its own bits.
func TestBlocksFinishTrees(t *testing.T) {
	terms := make([]float32, 1408)
	for i := range terms {
		terms[i] = float32(i%37)*1.1e-3 - float32(i%11)*7.3
	}
	for _, width := range []int{1, 3, 48, 64, 100, 512, 768, 1408} {
		for ranks := 1; ranks <= min(16, width); ranks++ {
			g := parallel.Grid{TP: ranks, EP: 1}
			var sums []float32
			for i := range ranks {
				for _, b := range g.Blocks(g.Inner(i, width), width) {
					sums = append(sums, contract.Tree(terms[b.From:b.To]))
				}
			}
			if have, want := contract.Tree(sums), contract.Tree(terms[:width]); have != want {
				t.Errorf("width %d on %d ranks: %v, want %v", width, ranks, have, want)
			}
		}
	}
	// The models' widths come in few blocks a rank.
	for width, want := range map[int][]int{512: {1, 1, 3, 1}, 768: {1, 3, 1, 3}, 1408: {1, 3, 1, 3}} {
		var most []int
		for ranks := 1; ranks <= len(want); ranks++ {
			g := parallel.Grid{TP: ranks}
			most = append(most, 0)
			for r := range ranks {
				most[ranks-1] = max(most[ranks-1], len(g.Blocks(g.Inner(r, width), width)))
			}
		}
		if !slices.Equal(most, want) {
			t.Errorf("width %d on 1 to 4 ranks: %v blocks a rank, want %v", width, most, want)
		}
	}
}

func TestGridCheck(t *testing.T) {
	s := contract.Shape{Hidden: 32, Experts: 6, TopK: 2, Width: 12, SharedWidth: 4, NormTopK: true}
	narrow := parallel.Grid{TP: 1, EP: 5}
	if err := narrow.Check(contract.Shape{Hidden: 4, Experts: 6, TopK: 2, Width: 12}); err == nil ||
		!strings.Contains(err.Error(), "5 expert-parallel ranks for hidden size 4") {
		t.Errorf("more columns than H: error %v", err)
	}
	for g, want := range map[parallel.Grid]string{
		{TP: 1, EP: 1}: "", {TP: 3, EP: 5}: "", {TP: 4, EP: 6}: "",
		{TP: 0, EP: 1}: "need at least 1 and 1",
		{TP: 1, EP: 7}: "7 expert-parallel ranks for 6 experts",
		{TP: 5, EP: 1}: "5 tensor-parallel ranks for hidden size 32, width 12 and shared width 4",
	} {
		err := g.Check(s)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %q", g, err, want)
		}
	}
}

// Each pair of a number of H and one of I is one rank's, and the cuts are those with which the fewest bytes cross.
func TestCommonParts(t *testing.T) {
	for _, c := range []struct{ ranks, hidden, width, parts int }{ // of I
		{1, 2048, 512, 1}, {2, 2048, 512, 1}, {8, 2048, 512, 2}, {16, 2048, 512, 2}, {64, 2048, 512, 4}, {512, 2048, 512, 16},
		{4, 64, 64, 2}, {7, 64, 64, 7}, {5, 2048, 0, 1}, {16, 16, 3, 2}, {6, 30, 300, 6}, {12, 13, 8, 3}, {3, 3, 1, 1},
	} {
		ofH, ofI := parallel.CommonParts(c.ranks, c.hidden, c.width)
		owners, parts := make([]int, c.hidden*c.width), map[contract.Range]bool{}
		for r := range ofH {
			parts[ofI[r]] = true
			for h := ofH[r].From; h < ofH[r].To; h++ {
				for i := ofI[r].From; i < ofI[r].To; i++ {
					owners[h*c.width+i]++
				}
			}
		}
		if len(ofH) != c.ranks || slices.ContainsFunc(owners, func(n int) bool { return n != 1 }) {
			t.Errorf("%+v: %v by %v: not each number once", c, ofH, ofI)
		}
		if len(parts) != c.parts {
			t.Errorf("%+v: %d parts of I", c, len(parts))
		}
	}
}
