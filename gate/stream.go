// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// microBatches compares the gradients of one batch with those of the same stream, cut (R11).
func microBatches(c *check) {
	n := c.tokens
	w := c.input(n)
	w.gradients = true
	one := c.run(w)
	splits := [][]int{{n / 2, n - n/2}, cutsOf(n, max(1, n/64)), {17, n - 17}}
	random := rand.New(rand.NewPCG(seed, 1))
	for range 2 {
		splits = append(splits, randomCuts(random, n))
	}
	for _, cuts := range splits {
		w.cuts = cuts
		c.same(show(cuts), c.run(w).everything(), one.everything())
	}
}

// randomCuts cuts n into pieces of 0 to 40.
func randomCuts(random *rand.Rand, n int) []int {
	var cuts []int
	for n > 0 {
		size := min(n, random.IntN(41))
		cuts = append(cuts, size)
		n -= size
	}
	return cuts
}

// padding compares the gradients of tokens with theirs when tokens of zero gradient stand among them (R9, R11).
func padding(c *check) {
	n := c.few(64)
	w := c.input(n)
	w.gradients = true
	bare := c.run(w)
	for _, place := range []struct {
		name string
		zero BF16
		at   []int // of the tokens, among 2n
	}{
		{"ahead, +0", 0, upTo(2 * n)[n:]},
		{"behind, -0", 0x8000, upTo(n)},
		{"in the middle, -0", 0x8000, slices.Concat(upTo(n/3), upTo(2 * n)[n+n/3:])},
		{"between any two, +0", 0, slices.DeleteFunc(upTo(2*n), func(i int) bool { return i%2 == 0 })},
	} {
		pads := c.inputOf(2*n, seed+2)
		for i := range pads.dy {
			pads.dy[i] = place.zero
		}
		got := c.run(c.among(w, 2*n, place.at, pads))
		c.same(place.name, got.take(place.at).everything(), bare.everything())
		c.zeroInputGradient(place.name, got, place.at)
	}
}

// repeats runs one work twenty times. Between any two runs the layer does other work, with numbers that would be seen if any
// were left behind.
func repeats(c *check) {
	w := c.input(c.few(48))
	w.gradients = true
	first := c.run(w)
	need := digestOf(first.everything()...)
	other := c.strangers(c.few(24), true)
	for i := range other.x[:c.Shape.Hidden] {
		other.x[i] = 0x7FC0
	}
	for i := 2; i <= 20; i++ {
		c.run(other)
		again := c.run(w)
		if have := digestOf(again.everything()...); have != need || i == 20 {
			c.same(fmt.Sprintf("repeat %d", i), again.everything(), first.everything())
		} else {
			c.claim(fmt.Sprintf("repeat %d", i), have, need)
		}
	}
}
