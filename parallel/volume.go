// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"encoding/json"
	"maps"
)

// Volume is how many bytes ranks have sent to others, by what they were.
type Volume map[string]int64

// What the forward sends, and the backward, which with samebit.Options.Recompute sends x again.
var (
	forwardSends  = []string{"plan", "x", "h", "rows", "y"}
	backwardSends = []string{"x again", "dy", "route weights", "dw", "dgate", "dup", "dx rows", "dx", "fold"}
)

// Forward is what the forward has sent.
func (v Volume) Forward() int64 { return v.of(forwardSends) }

// Backward is what the backward has sent, without the gradients that Flush gathers.
func (v Volume) Backward() int64 { return v.of(backwardSends) }

func (v Volume) of(what []string) (n int64) {
	for _, w := range what {
		n += v[w]
	}
	return n
}

// Minus is what was sent since another volume was taken.
func (v Volume) Minus(before Volume) Volume {
	d := maps.Clone(v)
	maps.DeleteFunc(d, func(what string, n int64) bool { return n == before[what] })
	for what := range d {
		d[what] -= before[what]
	}
	return d
}

// Textbook is what others would send for a forward of so many tokens that has this volume, and again for its backward: every
// token's x once to each rank that owns an expert of it and one sum of rows back, as DeepEP does in BF16, and a ring's all-reduce
// of y over the tensor-parallel ranks, as Megatron does. These sums are what costs them the bits.
func (v Volume) Textbook(g Grid, tokens, hidden int) int64 {
	return 2*v["x"]/int64(g.TP) + int64(2*(g.TP-1)*2*hidden)*int64(tokens)
}

// Volume is what this rank has sent since it joined.
func (r *Rank) Volume() Volume { return maps.Clone(r.volume) }

// SumVolumes adds up what all ranks tell of. All must call it.
func (r *Rank) SumVolumes(mine Volume) (Volume, error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all, err := r.Tell(string(text))
	sum := Volume{}
	for _, text := range all {
		var v Volume
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return nil, err
		}
		for what, n := range v {
			sum[what] += n
		}
	}
	return sum, err
}

// sending counts what is sent until the function that it gives is called.
func (r *Rank) sending(what string) func() {
	before := r.Group.Sent()
	return func() { r.volume[what] += r.Group.Sent() - before }
}
