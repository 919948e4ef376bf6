// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"fmt"

	"github.com/samebit/samebit/contract"
)

// Grid is how many ranks share what: TP ranks slice each expert, EP such columns share the experts. Rank number i is
// tensor-parallel rank i%TP of column i/TP, so that those that exchange most are neighbours.
type Grid struct {
	TP int `json:"tp"`
	EP int `json:"ep"`
}

func (g Grid) String() string { return fmt.Sprintf("TP %d x EP %d", g.TP, g.EP) }

// Ranks is how many ranks the grid has.
func (g Grid) Ranks() int { return g.TP * g.EP }

// At is where rank number i stands.
func (g Grid) At(i int) (tp, ep int) { return i % g.TP, i / g.TP }

// Check says why a layer of this shape cannot be spread over the grid, or nil. Neither the experts nor the widths need be
// multiples of the rank counts: shares then differ by one expert, or by one block of a tree.
func (g Grid) Check(s contract.Shape) error {
	switch {
	case g.TP < 1 || g.EP < 1:
		return fmt.Errorf("grid %v: need at least 1 and 1", g)
	case g.EP > s.Experts:
		return fmt.Errorf("grid %v: %d expert-parallel ranks for %d experts: need at most as many", g, g.EP, s.Experts)
	case g.EP > s.Hidden: // of which each makes a share of what all have the gradients of
		return fmt.Errorf("grid %v: %d expert-parallel ranks for hidden size %d: need at most as many", g, g.EP, s.Hidden)
	case g.TP > min(s.Hidden, s.Width) || s.SharedWidth > 0 && g.TP > s.SharedWidth:
		return fmt.Errorf("grid %v: %d tensor-parallel ranks for hidden size %d, width %d and shared width %d: need at most as many",
			g, g.TP, s.Hidden, s.Width, s.SharedWidth)
	}
	return nil
}

// share is rank i's part of n things that n ranks share out evenly.
func share(i, ranks, n int) contract.Range {
	return contract.Range{From: i * n / ranks, To: (i + 1) * n / ranks}
}

// shares are all ranks' parts.
func shares(ranks, n int) []contract.Range {
	var all []contract.Range
	for i := range ranks {
		all = append(all, share(i, ranks, n))
	}
	return all
}

// Columns are the columns' even parts of the tokens from one to another, in order.
func (g Grid) Columns(from, to int) []contract.Range {
	all := shares(g.EP, to-from)
	for i := range all {
		all[i].From, all[i].To = all[i].From+from, all[i].To+from
	}
	return all
}

// Experts is what an expert-parallel rank owns of E experts.
func (g Grid) Experts(ep, experts int) contract.Range { return share(ep, g.EP, experts) }

// Outputs is what a tensor-parallel rank makes of the H numbers of a row.
func (g Grid) Outputs(tp, hidden int) contract.Range { return share(tp, g.TP, hidden) }

// Inner is what a tensor-parallel rank makes of the width's I numbers between gate and up and down: whole blocks, each of which
// is an aligned subtree of the tree over I (R8), so that the ranks' sums of blocks finish it. The last block may be shorter.
func (g Grid) Inner(tp, width int) contract.Range {
	block := g.block(width)
	r := share(tp, g.TP, (width+block-1)/block)
	return contract.Range{From: min(r.From*block, width), To: min(r.To*block, width)}
}

// block is the length of Inner's blocks, a power of two: the largest with which no rank has more than an eighth more than its
// even share.
func (g Grid) block(width int) int {
	even := (width + g.TP - 1) / g.TP
	block := 1
	for b := 1; b < 2*width; b *= 2 {
		blocks := (width + b - 1) / b
		if most := min((blocks+g.TP-1)/g.TP*b, width); 8*most <= 9*even {
			block = b
		}
	}
	return block
}

// Blocks are the blocks that a range of Inner's is made of.
func (g Grid) Blocks(r contract.Range, width int) []contract.Range {
	block := g.block(width)
	var all []contract.Range
	for from := r.From; from < r.To; from += block {
		all = append(all, contract.Range{From: from, To: min(from+block, r.To)})
	}
	return all
}

// Part is what rank number i holds of a layer's weights.
func (g Grid) Part(i int, s contract.Shape) contract.Part {
	tp, ep := g.At(i)
	p := contract.Part{Shape: s, Experts: g.Experts(ep, s.Experts), Width: g.Inner(tp, s.Width)}
	if s.SharedWidth > 0 {
		p.Shared = g.Inner(tp, s.SharedWidth)
	}
	return p
}

// commonPart is a rank's part of the gradients that all columns have: of so many of the H numbers, and of the shared expert's of so
// many of the numbers of I that the rank's row has.
type commonPart struct{ hidden, width contract.Range }

// commonParts shares these gradients out among the ranks of a row, so that the fewest bytes cross: of a token, x and dy of a part of H
// go to the ranks of that part, and dg, du and bf16(h*w) of a part of I to those of that one.
func commonParts(ranks, hidden, width int) []commonPart {
	parts, least := 1, 0 // of I
	for n := 1; n <= min(ranks, max(1, width)); n++ {
		if ranks%n != 0 {
			continue
		}
		if bytes := 2*2*hidden*n + 3*2*width*(ranks/n); least == 0 || bytes < least {
			parts, least = n, bytes
		}
	}
	all := make([]commonPart, ranks)
	for r := range all {
		all[r] = commonPart{share(r%(ranks/parts), ranks/parts, hidden), share(r/(ranks/parts), parts, width)}
	}
	return all
}
