// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"math/rand/v2"

	"github.com/samebit/samebit/contract"
)

// randomLayer is a layer of random weights, in the scale of trained ones.
func randomLayer(r *rand.Rand, s contract.Shape) *contract.Layer {
	expert := func(width int) contract.Expert {
		n := s.Hidden * width
		return contract.Expert{Gate: normals(r, n, 0.2), Up: normals(r, n, 0.2), Down: normals(r, n, 0.2)}
	}
	w := contract.Weights{Router: normals(r, s.Experts*s.Hidden, 0.3)}
	for range s.Experts {
		w.Experts = append(w.Experts, expert(s.Width))
	}
	if s.SharedWidth > 0 {
		shared := expert(s.SharedWidth)
		w.Shared, w.SharedGate = &shared, normals(r, s.Hidden, 0.3)
	}
	if err := w.Check(s); err != nil {
		panic(err)
	}
	return &contract.Layer{Shape: s, Weights: w}
}

// bothModes is one small shape in each mode of the route weights.
func bothModes(visit func(s contract.Shape)) {
	for _, norm := range []bool{true, false} {
		visit(contract.Shape{Hidden: 24, Experts: 6, TopK: 4, Width: 17, SharedWidth: 9, NormTopK: norm})
	}
}
