// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contracttest

import (
	"fmt"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
	"pgregory.net/rapid"
)

// shapes: widths that are no multiple of 64, K of 1, 2, 4, 8, 10 and E, E up to 512, with and without a shared expert, in
// both norms and both precisions of the logits; then shapes at random.
func shapes(t *testing.T, o samebit.Options) {
	for _, s := range []contract.Shape{
		{Hidden: 64, Experts: 16, TopK: 4, Width: 48, SharedWidth: 48, NormTopK: true},
		{Hidden: 64, Experts: 16, TopK: 1, Width: 48, NormTopK: true},
		{Hidden: 48, Experts: 16, TopK: 2, Width: 16, NormTopK: false},
		{Hidden: 160, Experts: 8, TopK: 8, Width: 48, SharedWidth: 80, NormTopK: true},
		{Hidden: 33, Experts: 24, TopK: 10, Width: 17, SharedWidth: 7, NormTopK: false},
		{Hidden: 16, Experts: 512, TopK: 10, Width: 16, SharedWidth: 16, NormTopK: true},
		{Hidden: 8, Experts: 512, TopK: 512, Width: 3, NormTopK: false},
		{Hidden: 1, Experts: 1, TopK: 1, Width: 1, SharedWidth: 1, NormTopK: true},
		{Hidden: 300, Experts: 5, TopK: 3, Width: 130, SharedWidth: 33, NormTopK: false},
	} {
		for _, precision := range []samebit.Precision{samebit.FP32, samebit.BF16Logits} {
			o.RouterLogits = precision
			x, dy := tokens(9, s, 3)
			open(t, o, s, weights(s, 2)).check(fmt.Sprintf("%+v, logits %d", s, precision), x, dy, nil)
		}
	}
	o.RouterLogits = samebit.FP32
	if testing.Short() {
		return
	}
	rapid.Check(t, func(r *rapid.T) {
		s := contract.Shape{
			Hidden:      rapid.IntRange(1, 70).Draw(r, "hidden"),
			Experts:     rapid.IntRange(1, 20).Draw(r, "experts"),
			Width:       rapid.IntRange(1, 40).Draw(r, "width"),
			SharedWidth: rapid.IntRange(0, 40).Draw(r, "shared width"),
			NormTopK:    rapid.Bool().Draw(r, "norm"),
		}
		s.TopK = rapid.IntRange(1, s.Experts).Draw(r, "top-k")
		x, dy := tokens(rapid.IntRange(0, 40).Draw(r, "tokens"), s, rapid.Uint64().Draw(r, "seed"))
		open(t, o, s, weights(s, 1)).check(fmt.Sprintf("%+v", s), x, dy, nil)
	})
}
