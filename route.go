// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
)

// Routes are where the tokens went, and why.
type Routes struct {
	Logits   []float32     // [T,E]
	IDs      []int32       // [T,K], -1 for a token that did no work
	Weights  []float32     // [T,K]
	Rejected RejectedError // how many tokens were rejected (R13), and which first
	experts  int
}

// ExpertLoad is how evenly the tokens are spread over the experts.
type ExpertLoad struct {
	Tokens  []int   `json:"tokens"`        // of each expert
	MaxMean float64 `json:"max_over_mean"` // the busiest expert's tokens over the mean; 0 where there are none
	Dead    int     `json:"dead"`          // experts without a token
}

// Load counts the tokens of each expert.
func (r *Routes) Load() ExpertLoad {
	load := ExpertLoad{Tokens: make([]int, r.experts)}
	total, most := 0, 0
	for _, e := range r.IDs {
		if e >= 0 {
			load.Tokens[e]++
			total++
			most = max(most, load.Tokens[e])
		}
	}
	for _, n := range load.Tokens {
		if n == 0 {
			load.Dead++
		}
	}
	if total > 0 {
		load.MaxMean = float64(most) * float64(r.experts) / float64(total)
	}
	return load
}

func (l *Layer) newOutput(tokens int) *Output {
	s := l.shape
	return &Output{
		Y: make([]BF16, tokens*s.Hidden),
		Routes: Routes{
			Logits:  make([]float32, tokens*s.Experts),
			IDs:     make([]int32, tokens*s.TopK),
			Weights: make([]float32, tokens*s.TopK),
			experts: s.Experts,
		},
	}
}

// read copies a chunk's routes to its place among the call's.
func (r *Routes) read(m *arena, from backend.Route, first, end int, s contract.Shape) {
	get(m, rowsOf(r.Logits, first, end, s.Experts), from.Logits)
	get(m, rowsOf(r.IDs, first, end, s.TopK), from.IDs)
	get(m, rowsOf(r.Weights, first, end, s.TopK), from.Weights)
	status := make([]int32, end-first)
	get(m, status, from.Status)
	if m.err != nil {
		return
	}
	for t, v := range status {
		if contract.Status(v) != contract.Rejected {
			continue
		}
		if r.Rejected.Tokens == 0 {
			r.Rejected.First = first + t
		}
		r.Rejected.Tokens++
	}
}
