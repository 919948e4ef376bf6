// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"slices"
	"testing"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
)

// A layer whose experts are elsewhere asks the GPU for nothing that it could not do. The GPU here does nothing, so no bits are
// looked at.
func TestExpertsElsewhere(t *testing.T) {
	for _, norm := range []bool{true, false} {
		b, f := fakeBackend(t)
		s := contract.Shape{Hidden: 40, Experts: 6, TopK: 2, Width: 0, SharedWidth: 24, NormTopK: norm}
		l, err := b.Load(backend.Spec{Shape: s, Weights: s.NewWeights()})
		if err != nil {
			t.Fatal(err)
		}
		const tokens = 20
		alloc := func(d backend.Dtype, n int) backend.Buffer {
			v, err := b.Alloc(d, n)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		all := tokens * (s.TopK + 1)
		newRows := func() backend.Rows {
			return backend.Rows{Tokens: tokens, Slots: s.TopK, Shared: true, Offsets: alloc(backend.I32, s.Experts+2),
				Token: alloc(backend.I32, all), Slot: alloc(backend.I32, all), Row: alloc(backend.I32, all)}
		}
		rows, back := newRows(), newRows()
		x, dy, y := alloc(backend.BF16, tokens*s.Hidden), alloc(backend.BF16, tokens*s.Hidden), alloc(backend.BF16, tokens*s.Hidden)
		in := alloc(backend.BF16, all*s.Hidden)
		logits, z, status := alloc(backend.FP32, tokens*s.Experts), alloc(backend.FP32, tokens), alloc(backend.I32, tokens)
		ids, weights := alloc(backend.I32, tokens*s.TopK), alloc(backend.FP32, tokens*s.TopK)
		weight, dweight := alloc(backend.FP32, all), alloc(backend.FP32, all)
		dlogits, dz := alloc(backend.FP32, tokens*s.Experts), alloc(backend.FP32, tokens)
		for name, err := range map[string]error{
			"Route":         l.Route(backend.Route{Tokens: tokens, X: x, Logits: logits, Z: z, Status: status, IDs: ids, Weights: weights}),
			"Plan":          l.Plan(backend.Plan{IDs: ids, Rows: rows}),
			"Combine":       l.Combine(backend.Combine{Rows: rows, In: in, Weights: weights, Z: z, Status: status, Y: y}),
			"PlanBackward":  l.PlanBackward(backend.PlanBackward{DY: dy, IDs: ids, Weights: weights, Z: z, Rows: back, Weight: weight}),
			"RouteBackward": l.RouteBackward(backend.RouteBackward{Rows: back, DWeight: dweight, Logits: logits, IDs: ids, Weights: weights, Z: z, DLogits: dlogits, DZ: dz}),
			"InputGradient": l.InputGradient(backend.InputGradient{Rows: back, In: in, IDs: ids, DLogits: dlogits, DZ: dz, DX: y}),
		} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, d := range []backend.Dtype{backend.FP32, backend.BF16} {
			none := alloc(d, 0)
			g := &backend.Gradients{Router: alloc(d, s.Experts*s.Hidden), SharedGate: alloc(d, s.Hidden), Shared: &backend.ExpertGradient{
				Gate: alloc(d, 24*s.Hidden), Up: alloc(d, 24*s.Hidden), Down: alloc(d, 24*s.Hidden)}}
			for range s.Experts {
				g.Experts = append(g.Experts, backend.ExpertGradient{Gate: none, Up: none, Down: none})
			}
			fold, err := l.NewFold(g)
			if err != nil {
				t.Fatal(err)
			}
			empty := alloc(backend.BF16, 0)
			shared := func() backend.Buffer { return alloc(backend.BF16, tokens*24) }
			args := backend.FoldArgs{X: x, DY: dy, Rows: rows, RoutedGrad: backend.RowGradients{DGate: empty, DUp: empty, HW: empty},
				SharedGrad: backend.RowGradients{DGate: shared(), DUp: shared(), HW: shared()}, IDs: ids, DLogits: dlogits, DZ: dz}
			for _, err := range []error{fold.Add(args), fold.Flush(), fold.Close()} {
				if err != nil {
					t.Errorf("fold into %v: %v", d, err)
				}
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil || f.Left() > 0 || len(f.Launches) == 0 {
			t.Errorf("close: %v, %d allocations left, %d launches", err, f.Left(), len(f.Launches))
		}
		for _, sizes := range f.Maps {
			if slices.Contains(sizes, 0) {
				t.Errorf("a tensor of %v elements", sizes)
			}
		}
	}
}
