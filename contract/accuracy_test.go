// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/samebit/samebit/contract"
)

// TestAccuracy measures the distance from what float64 gives for all tiny checkpoints. It is no test of bits: it shows
// that the arithmetic whose bits the other tests fix is that of the layer.
func TestAccuracy(t *testing.T) {
	const bound = 4e-3 // one BF16 rounding is up to 2^-9 = 2e-3
	folders, err := os.ReadDir(checkpoints)
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if !folder.IsDir() {
			continue
		}
		name := folder.Name()
		l, _, x, dy := load(t, name)
		got := runLayer(l, x, dy, nil)
		f := open(t, filepath.Join(checkpoints, name, testIO))
		distance := func(of string, v []contract.BF16) float64 {
			tensor, _ := f.Tensor(of)
			exact, err := tensor.F64()
			if err != nil || len(exact) != len(v) {
				t.Fatalf("%s: %s: %d elements, %v", name, of, len(exact), err)
			}
			var d, n float64
			for i := range v {
				d += math.Pow(float64(v[i].Float32())-exact[i], 2)
				n += exact[i] * exact[i]
			}
			return math.Sqrt(d / n)
		}
		y, dx := distance("y_f64", join(got, output)), distance("dx_f64", slices.Concat(got.dx...))
		if !(y < bound && dx < bound) {
			t.Errorf("%s: relative L2 distance of y %.2e, of dx %.2e: need less than %.0e", name, y, dx, bound)
		}
		// Routes of equal weight may be in either order.
		ids, exact := join(got, ids), i32Tensor(t, f, "topk_ids")
		for i := 0; i < len(ids); i += l.TopK {
			a, b := slices.Sorted(slices.Values(ids[i:i+l.TopK])), slices.Sorted(slices.Values(exact[i:i+l.TopK]))
			if !slices.Equal(a, b) {
				t.Errorf("%s: token %d is routed to %d, in float64 to %d", name, i/l.TopK, a, b)
			}
		}
		t.Logf("%s: relative L2 distance from float64: y %.2e, dx %.2e", name, y, dx)
	}
}
