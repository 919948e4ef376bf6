// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// PerToken is what a token costs between ranks, in bytes: what all of them send to others, over the tokens.
type PerToken struct {
	Forward  float64            `json:"forward"`
	Backward float64            `json:"backward"`
	All      float64            `json:"all"`      // the gradients that Flush gathers too
	Textbook float64            `json:"textbook"` // of the forward, and again of the backward: see Volume
	Of       map[string]float64 `json:"of"`       // by what is sent
}

// PerToken is the volume of a forward, and perhaps its backward, of so many tokens, over these.
func (v Volume) PerToken(g Grid, tokens, hidden int) *PerToken {
	per := func(bytes int64) float64 { return float64(bytes) / float64(tokens) }
	p := &PerToken{Forward: per(v.Forward()), Backward: per(v.Backward()), Textbook: per(v.Textbook(g, tokens, hidden)), Of: map[string]float64{}}
	all := int64(0)
	for what, bytes := range v {
		p.Of[what] = per(bytes)
		all += bytes
	}
	p.All = per(all)
	return p
}

// String says it in a line.
func (p *PerToken) String() string {
	var parts []string
	for _, what := range slices.Concat(forwardSends, backwardSends) {
		if n := p.Of[what]; n > 0 && what != "plan" && what != "route weights" && what != "dw" {
			parts = append(parts, fmt.Sprintf("%s %.0f", what, n))
		}
	}
	text := fmt.Sprintf("bytes between ranks a token: forward %.0f, backward %.0f (%s)", p.Forward, p.Backward, strings.Join(parts, ", "))
	if n := p.Of["gradients"]; n > 0 {
		text += fmt.Sprintf(", Flush's gradients %.0f", n)
	}
	return text + fmt.Sprintf("; the textbook's, which adds on the way: %.0f and as many", p.Textbook)
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
