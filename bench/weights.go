// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bench

import (
	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
	"github.com/samebit/samebit/parallel"
)

// Weights are testgen.Weights, with word of how far they are: tick may be nil.
func Weights(s contract.Shape, seed uint64, tick func(done, total int64)) *contract.Weights {
	return PartWeights(s.Whole(), seed, tick)
}

// PartWeights are a part of Weights; of its experts, whole ones are made ahead of the cut.
func PartWeights(part contract.Part, seed uint64, tick func(done, total int64)) *contract.Weights {
	s := part.Shape
	w := &contract.Weights{Experts: make([]contract.Expert, s.Experts)}
	if s.SharedWidth > 0 {
		w.Shared = &contract.Expert{}
	}
	done, total := int64(0), weightBytes(s)
	for _, p := range parts(s) {
		done += 2 * int64(p.Len(s))
		if p.Role < checkpoint.Gate || p.Shared || part.Experts.Has(p.Expert) {
			v := make([]contract.BF16, p.Len(s))
			testgen.Fill(v, seed, testgen.Stream(0, p), testgen.WeightScale)
			*p.In(w) = v
		}
		if tick != nil {
			tick(done, total)
		}
	}
	if part == s.Whole() {
		return w
	}
	return parallel.CutWeights(w, part)
}

// parts are the matrices of a layer.
func parts(s contract.Shape) (all []checkpoint.Part) {
	for _, e := range (checkpoint.Layout{}).Entries(0, s) { // every layout has the same parts
		all = append(all, e.Parts...)
	}
	return all
}

// weightBytes is what all weights take.
func weightBytes(s contract.Shape) (n int64) {
	for _, p := range parts(s) {
		n += 2 * int64(p.Len(s))
	}
	return n
}
