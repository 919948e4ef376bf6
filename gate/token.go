// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"slices"

	"github.com/samebit/samebit/internal/bits"
)

// replayLive compares live routes with the same routes replayed (R3).
func replayLive(c *check) {
	w := c.input(c.few(64))
	w.gradients = true
	live := c.run(w)
	w.replay = live.ids
	c.same("replayed", c.run(w).everything(), live.everything())
}

// replayPadding puts tokens whose ids are replayed as -1 ahead of, between and behind others. They have a gradient, and yet
// take part in nothing (R3).
func replayPadding(c *check) {
	n := c.few(64)
	w := c.input(n)
	w.gradients = true
	bare := c.run(w)
	of := n + 9
	at := except(of, []int{0, 1, n / 2, n/2 + 1, n/2 + 2, n - 1, of - 3, of - 2, of - 1})
	all := c.among(w, of, at, c.inputOf(of, seed+3))
	all.replay = make([]int32, of*c.Shape.TopK)
	for i := range all.replay {
		all.replay[i] = -1
	}
	for i, to := range at {
		copy(all.replay[to*c.Shape.TopK:(to+1)*c.Shape.TopK], bare.ids[i*c.Shape.TopK:])
	}
	got := c.run(all)
	c.same("the tokens", got.take(at).everything(), bare.everything())
	c.workless("rows of -1", got, except(of, at), 0)
}

// workless compares tokens that did no work with what they must give: y of one value, dx and weights of +0, ids of -1.
func (c *check) workless(what string, p pass, tokens []int, y BF16) {
	have := p.take(tokens)
	need := have
	need.y, need.dx = slices.Repeat([]BF16{y}, len(have.y)), make([]BF16, len(have.dx))
	need.ids, need.weights = slices.Repeat([]int32{-1}, len(have.ids)), make([]float32, len(have.weights))
	c.same(what, have.tokens()[1:], need.tokens()[1:], bits.AllowNonFinite) // all but the logits
}

// rejected puts tokens with a NaN or an infinity among others, whose bits must stay (R13).
func rejected(c *check) {
	n := c.few(64)
	w := c.input(n)
	w.gradients = true
	bare := c.run(w)
	const bad = 5
	of := n + bad
	spoilt := []int{2, 3, n / 2, of - 2, of - 1}
	at := except(of, spoilt)
	all := c.among(w, of, at, c.inputOf(of, seed+4))
	h := c.Shape.Hidden
	row := func(i int) []BF16 { return all.x[spoilt[i]*h : (spoilt[i]+1)*h] }
	const nan, inf, minusInf = 0x7FC0, 0x7F80, 0xFF80
	row(0)[h/3] = nan
	copy(row(1), slices.Repeat([]BF16{nan}, h))
	row(2)[0] = inf
	row(3)[h-1] = minusInf
	row(4)[h/2], row(4)[h/2+1] = inf, minusInf

	got := c.run(all)
	c.same("the other tokens", got.take(at).everything(), bare.everything())
	c.workless("rejected tokens", got, spoilt, nan)
	c.claim("tokens rejected, and the first", fmt.Sprint(got.rejected), fmt.Sprint([]int{bad, spoilt[0]}))
	if !c.Options.AllowReject {
		c.claim("the call returns a RejectedError", fmt.Sprint(got.refused), "true")
	}
}

// ranksRoutes compares the routes of all ranks (R12). A lone rank is compared with a replica of it, which has other workers
// and works on fewer tokens at a time.
func ranksRoutes(c *check) {
	passes := c.everyRank(c.input(c.few(256)))
	for i, p := range passes[1:] {
		c.same(c.rank(i+1), p.routes(), passes[0].routes())
	}
	c.elsewhere(digestOf(passes[0].routes()...))
}

// ranksGradients compares the gradients of the weights that every rank has in full (R12).
func ranksGradients(c *check) {
	w := c.input(c.few(256))
	w.gradients = true
	passes := c.everyRank(w)
	for i, p := range passes[1:] {
		c.same(c.rank(i+1), p.replicated(), passes[0].replicated())
	}
	c.elsewhere(digestOf(passes[0].replicated()...))
}

const replicaTokens = 37

func (c *check) everyRank(w work) []pass {
	passes := c.runAll(w)
	if len(passes) > 1 {
		return passes
	}
	o := c.Options
	o.Workers, o.MaxTokens = o.Workers+3, replicaTokens
	replica, err := c.open(o, c.ranks())
	c.must(err)
	defer closeAll(replica)
	again, err := runAll(replica, w)
	c.must(err)
	c.note("one rank here, so a replica stands for a second: %d workers, %d tokens at a time", o.Workers, o.MaxTokens)
	return append(passes, again...)
}

func (c *check) rank(i int) string {
	if i < len(c.Ranks) {
		return fmt.Sprintf("rank %d against rank 0", i)
	}
	return "replica against rank 0"
}
