// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contracttest

import (
	"slices"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
)

// load: uneven work for the experts.
func load(t *testing.T, o samebit.Options) {
	n := 4096
	if testing.Short() {
		n = 256
	}
	// Every token to the same experts.
	shape := contract.Shape{Hidden: 16, Experts: 8, TopK: 2, Width: 16, SharedWidth: 16, NormTopK: true}
	w := weights(shape, 21)
	s := open(t, o, shape, w)
	x, dy := tokens(n, shape, 22)
	s.check("every token to experts 5 and 2", x, dy, slices.Repeat([]int32{5, 2}, n))

	// All to the last three of 512; the others have no rows, and gradients of +0.
	last := contract.Shape{Hidden: 16, Experts: 512, TopK: 3, Width: 16, NormTopK: true}
	many := open(t, o, last, weights(last, 23))
	x, dy = tokens(100, last, 24)
	ids := slices.Repeat([]int32{511, 509, 510}, 100)
	many.check("every token to the last three experts", x, dy, ids)

	// Group sizes of 162, 0, 257, 46, 0, 83.
	sizes := []int{162, 0, 257, 46, 0, 83}
	uneven := contract.Shape{Hidden: 16, Experts: len(sizes), TopK: 1, Width: 16, NormTopK: false}
	ids = nil
	for e, size := range sizes {
		ids = append(ids, slices.Repeat([]int32{int32(e)}, size)...)
	}
	seeded(25).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	x, dy = tokens(len(ids), uneven, 26)
	open(t, o, uneven, weights(uneven, 27)).check("uneven groups", x, dy, ids)

	cancelling(t, o)
}

// cancelling: experts whose rows are A, B, -A and D, |A| being about 1e20, so that a sum in another order has another
// value. The slots' order decides y's, the experts' order dx's.
func cancelling(t *testing.T, o samebit.Options) {
	shape := contract.Shape{Hidden: 16, Experts: 4, TopK: 4, Width: 16, NormTopK: true}
	w := weights(shape, 28)
	clear(w.Router) // equal weights, exactly
	w.Experts[2] = contract.Expert{Gate: w.Experts[0].Gate, Up: w.Experts[0].Up, Down: slices.Clone(w.Experts[0].Down)}
	scale(w.Experts[0].Down, 1e20)
	scale(w.Experts[2].Down, -1e20)
	const n = 24
	x, dy := tokens(n, shape, 29)
	s := open(t, o, shape, w)
	s.check("experts of 1e20, 1, -1e20, 1", x, dy, nil)
	var ids []int32
	r := seeded(30)
	for range n {
		for _, e := range r.Perm(4) {
			ids = append(ids, int32(e))
		}
	}
	s.check("experts of 1e20, 1, -1e20, 1 in other slots", x, dy, ids)
}
