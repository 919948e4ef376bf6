// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/samebit/samebit/contract"
)

// chunked compares a batch with its chunks, also of sizes that divide nothing: y, dx and the routes.
func chunked(c *check) {
	w := c.input(c.tokens)
	full := c.run(w)
	for _, cuts := range [][]int{cutsOf(c.tokens, (c.tokens+1)/2), cutsOf(c.tokens, max(3, c.tokens/5)), odd(c.tokens)} {
		w.cuts = cuts
		c.same("chunks of "+show(cuts), c.run(w).tokens(), full.tokens())
	}
}

// reversed compares a batch with itself, last token first.
func reversed(c *check) {
	w := c.input(c.tokens)
	full := c.run(w)
	back := upTo(c.tokens)
	slices.Reverse(back)
	w.x, w.dy = take(w.x, c.Shape.Hidden, back), take(w.dy, c.Shape.Hidden, back)
	c.same("reversed", c.run(w).take(back).tokens(), full.tokens())
}

// everyCount compares a batch's first tokens with a batch of only those, at all counts where others change kernels.
func everyCount(c *check) {
	w := c.input(c.most)
	full := c.run(work{x: w.x})
	for _, n := range []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129,
		255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 4095, 4096, 8192} {
		if n > c.most {
			break
		}
		have, need := c.run(work{x: w.x[:n*c.Shape.Hidden]}), full.take(upTo(n))
		c.same(fmt.Sprintf("the first %d", n), have.forward(), need.forward())
	}
}

// training compares a forward that keeps a tape with one that does not.
func training(c *check) {
	for _, n := range []int{1, 8, 65, 257} {
		w := c.input(c.few(n))
		trained := c.run(w)
		w.infer = true
		c.same(fmt.Sprintf("%d tokens", c.few(n)), trained.forward(), c.run(w).forward())
	}
}

// probe compares tokens alone with the same among strangers, whose upstream gradient is zero: y, dx, routes and every gradient.
func probe(c *check) {
	w := c.input(c.tokens)
	w.gradients = true
	alone := c.run(w)
	random := rand.New(rand.NewPCG(seed, uint64(c.tokens)))
	scattered := func(of int) []int {
		at := random.Perm(of)[:c.tokens]
		slices.Sort(at)
		return at
	}
	last := upTo(c.most)[c.most-c.tokens:]
	for _, batch := range []struct {
		what string
		of   int
		at   []int
		loud bool
	}{
		{"first", c.most, upTo(c.tokens), false},
		{"last", c.most, last, false},
		{"scattered", c.most, scattered(c.most), false},
		{"scattered among strangers 8192 times as large", 2*c.tokens - 1, scattered(2*c.tokens - 1), true},
	} {
		all := c.among(w, batch.of, batch.at, c.strangers(batch.of, batch.loud))
		got := c.run(all)
		what := fmt.Sprintf("%s of %d", batch.what, batch.of)
		c.same(what, got.take(batch.at).everything(), alone.everything())
		c.zeroInputGradient(what, got, batch.at)
	}
}

// strangers are n tokens whose upstream gradient is zero, of either sign.
func (c *check) strangers(n int, loud bool) work {
	w := c.inputOf(n, seed+1)
	for i := range w.dy {
		w.dy[i] = BF16(i%3%2) << 15
	}
	if loud {
		for i, v := range w.x {
			w.x[i] = contract.Round(v.Float32() * 8192)
		}
	}
	return w
}

// among gives the batch in which tokens stand at ascending places among others.
func (c *check) among(tokens work, of int, at []int, others work) work {
	all := tokens
	h := c.Shape.Hidden
	all.x, all.dy = slices.Clone(others.x[:of*h]), slices.Clone(others.dy[:of*h])
	for i, to := range at {
		copy(all.x[to*h:(to+1)*h], tokens.x[i*h:])
		copy(all.dy[to*h:(to+1)*h], tokens.dy[i*h:])
	}
	return all
}

// zeroInputGradient compares the dx of all tokens but those at some places with +0 (R9).
func (c *check) zeroInputGradient(what string, p pass, at []int) {
	others := p.take(except(len(p.y)/c.Shape.Hidden, at))
	zero := others
	zero.dx = make([]BF16, len(others.dx))
	c.same(what+", the others", others.inputGradient(), zero.inputGradient())
}

// upTo is 0 to n-1.
func upTo(n int) []int {
	v := make([]int, n)
	for i := range v {
		v[i] = i
	}
	return v
}

// except is 0 to n-1 without some.
func except(n int, without []int) []int {
	return slices.DeleteFunc(upTo(n), func(i int) bool { return slices.Contains(without, i) })
}

// cutsOf cuts n into pieces of a size, and the rest.
func cutsOf(n, size int) []int {
	var cuts []int
	for ; n > 0; n -= size {
		cuts = append(cuts, min(n, size))
	}
	return cuts
}

// odd cuts n into pieces of sizes that have nothing to do with one another.
func odd(n int) []int {
	sizes := []int{1, 5, 2, 47, 17, 31, 129, 7}
	var cuts []int
	for n > 0 {
		size := min(n, sizes[len(cuts)%len(sizes)])
		cuts = append(cuts, size)
		n -= size
	}
	return cuts
}

// show writes cuts shortly: 3 x 16 + 7.
func show(cuts []int) string {
	var parts []string
	for i := 0; i < len(cuts); {
		n := 1
		for i+n < len(cuts) && cuts[i+n] == cuts[i] {
			n++
		}
		if n > 1 {
			parts = append(parts, fmt.Sprintf("%d x %d", n, cuts[i]))
		} else {
			parts = append(parts, fmt.Sprint(cuts[i]))
		}
		if i += n; len(parts) == 6 && i < len(cuts) {
			parts = append(parts, "...")
			break
		}
	}
	return strings.Join(parts, " + ")
}
