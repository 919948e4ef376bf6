// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/samebit/samebit/contract"
)

// The formulas of the float64 layer's backward, to which the contract's results are held, are derivatives of its forward: of the
// scalar dy.y, element by element, by central differences of two steps that leave an error of the fourth order.
func TestFiniteDifferences(t *testing.T) {
	const step, bound = 1.0 / 64, 3e-5
	for _, norm := range []bool{true, false} {
		r := rand.New(rand.NewPCG(71, 72))
		s := contract.Shape{Hidden: 5, Experts: 4, TopK: 2, Width: 3, SharedWidth: 2, NormTopK: norm}
		some := func(v []BF16) { // multiples of 1/16 below 1, which steps leave exact
			for i := range v {
				v[i] = contract.Round(float32(r.IntN(31)-15) / 16)
			}
		}
		w := s.NewWeights()
		l := layer64{s, w}
		matrices := map[string][]BF16{"router": w.Router, "shared gate": w.SharedGate,
			"shared gate_proj": w.Shared.Gate, "shared up_proj": w.Shared.Up, "shared down_proj": w.Shared.Down}
		for e, x := range w.Experts {
			for role, m := range map[string][]BF16{"gate": x.Gate, "up": x.Up, "down": x.Down} {
				matrices[fmt.Sprintf("expert %d %s", e, role)] = m
			}
		}
		const tokens = 6
		x, dy := make([]BF16, tokens*s.Hidden), make([]BF16, tokens*s.Hidden)
		matrices["x"] = x
		some(dy)
		for _, m := range matrices {
			some(m)
		}
		var ids []int32 // fixed, for a choice has no derivative
		for range tokens {
			for _, e := range r.Perm(s.Experts)[:s.TopK] {
				ids = append(ids, int32(e))
			}
		}
		exact := l.run(x, dy, ids)
		of := func() float64 { return dot(l.run(x, dy, ids).y, wide(dy)) }
		slope := func(v *BF16, h float32) float64 {
			was := *v
			defer func() { *v = was }()
			*v = contract.Round(was.Float32() + h)
			up := of()
			*v = contract.Round(was.Float32() - h)
			return (up - of()) / (2 * float64(h))
		}
		formulas := map[string][]float64{"x": exact.dx, "router": exact.router, "shared gate": exact.sharedRow}
		for role, name := range map[string]string{"gate": "shared gate_proj", "up": "shared up_proj", "down": "shared down_proj"} {
			formulas[name] = exact.gradient(s.Experts, role)
			for e := range s.Experts {
				formulas[fmt.Sprintf("expert %d %s", e, role)] = exact.gradient(e, role)
			}
		}
		for name, m := range matrices {
			for i := range m {
				want := (4*slope(&m[i], step) - slope(&m[i], 2*step)) / 3
				if have := formulas[name][i]; !(math.Abs(have-want) <= bound*max(1, math.Abs(want))) {
					t.Errorf("norm_topk_prob %t, %s: the derivative by element %d is %.8g by the formula and %.8g by differences", norm, name, i, have, want)
				}
			}
		}
	}
}
