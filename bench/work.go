// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bench

import "github.com/samebit/samebit/contract"

// Work is what one run cannot do without. It is the same for every way of doing it, padding and repeated reads being a way.
type Work struct {
	Experts float64 `json:"experts"` // with a token, the shared one not among them
	Weights float64 `json:"weights"` // bytes: the router, the shared expert and those experts, once a forward and once a backward
	MACs    float64 `json:"macs"`    // multiply-adds
}

// workOf is the work of a pass over tokens that go to so many experts.
func workOf(s contract.Shape, p Pass, tokens int, experts float64) Work {
	router := s.Experts * s.Hidden
	if s.SharedWidth > 0 {
		router += s.Hidden
	}
	expert, shared := 3*s.Hidden*s.Width, 3*s.Hidden*s.SharedWidth
	w := Work{
		Experts: experts,
		Weights: 2 * (float64(router+shared) + experts*float64(expert)),
		MACs:    float64(tokens) * float64(router+s.TopK*expert+shared),
	}
	if p == Forward {
		return w
	}
	// Backward: each product of an expert once for its input's and once for its weights' gradient; so the router's, for the
	// logits that have a gradient.
	logits := s.TopK
	if !s.NormTopK {
		logits = s.Experts
	}
	if s.SharedWidth > 0 {
		logits++
	}
	w.Weights *= 2
	w.MACs += 2 * float64(tokens) * float64(logits*s.Hidden+s.TopK*expert+shared)
	return w
}
