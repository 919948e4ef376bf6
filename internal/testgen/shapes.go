// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package testgen

import (
	"fmt"

	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/contract"
)

// Named is a shape with a name.
type Named struct {
	Name string
	contract.Shape
}

// Shapes are the shapes that tests and benchmarks go by, the largest first.
var Shapes = []Named{
	{"qwen3-next", contract.Shape{Hidden: 2048, Experts: 512, TopK: 10, Width: 512, SharedWidth: 512, NormTopK: true}},
	{"qwen3-30b-a3b", contract.Shape{Hidden: 2048, Experts: 128, TopK: 8, Width: 768, NormTopK: true}},
	{"mid", contract.Shape{Hidden: 256, Experts: 64, TopK: 8, Width: 96, SharedWidth: 96, NormTopK: true}},
	{"tiny", contract.Shape{Hidden: 128, Experts: 16, TopK: 4, Width: 48, SharedWidth: 64, NormTopK: true}},
}

// Shape gives the shape of that name.
func Shape(name string) (contract.Shape, error) {
	var names []string
	for _, s := range Shapes {
		if s.Name == name {
			return s.Shape, nil
		}
		names = append(names, s.Name)
	}
	return contract.Shape{}, fmt.Errorf("shape %q: need one of %v", name, names)
}

// layout is how the checkpoints that this package writes are laid out.
var layout = checkpoint.Layout{Prefix: checkpoint.Prefix, Block: checkpoint.MLP}

// Weights are layer 0's weights of a checkpoint of that shape and seed.
func Weights(s contract.Shape, seed uint64) contract.Weights {
	w := contract.Weights{Experts: make([]contract.Expert, s.Experts)}
	if s.SharedWidth > 0 {
		w.Shared = &contract.Expert{}
	}
	for _, e := range layout.Entries(0, s) {
		for _, p := range e.Parts {
			*p.In(&w) = filled(p.Len(s), seed, Stream(0, p), WeightScale)
		}
	}
	return w
}
