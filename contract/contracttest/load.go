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

	// What experts far apart in size contribute: one answer, in slot order.
	cancel := contract.Shape{Hidden: 16, Experts: 4, TopK: 4, Width: 16, NormTopK: true}
	cw := weights(cancel, 28)
	for e, size := range []float32{1e20, 1, -1e20, 1} {
		scale(cw.Experts[e].Down, size)
	}
	x, dy = tokens(20, cancel, 29)
	open(t, o, cancel, cw).check("experts of 1e20, 1, -1e20, 1", x, dy, nil)
}
