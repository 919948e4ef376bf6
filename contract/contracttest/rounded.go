// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contracttest

import (
	"fmt"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
)

// rounded: gradients in BF16 are the FP32 ones in one cast, over whatever was in memory, for streams of few rows and of so
// many that they cannot all wait, cut anyhow; a Flush begins a new sum.
func rounded(t *testing.T, o samebit.Options) {
	shape := contract.Shape{Hidden: 40, Experts: 6, TopK: 2, Width: 24, SharedWidth: 20, NormTopK: true}
	n := 1400
	if testing.Short() {
		n = 200
	}
	s := open(t, o, shape, weights(shape, 51))
	x, dy := tokens(n, shape, 52)
	few := 33
	for i := range few { // the first tokens leave some experts without a row
		copy(row(x, i, shape.Hidden), row(x, i%2, shape.Hidden))
	}
	into := shape.NewWeights()
	g, err := s.layer.NewBF16Gradients(into)
	if err != nil {
		t.Fatal(err)
	}
	for _, parts := range [][]int{{n}, {few}, {0}, {n / 2, n / 4, n - n/2 - n/4}, {few, 1, 2}, even(n, 64), {few}} {
		poisonWeights(into)
		at := 0
		for _, size := range parts {
			from, to := at*shape.Hidden, (at+size)*shape.Hidden
			s.add(g, x[from:to], dy[from:to], nil)
			at += size
		}
		if err := g.Flush(); err != nil {
			t.Fatal(err)
		}
		want := s.want(x[:at*shape.Hidden], dy[:at*shape.Hidden], nil).grads
		s.sameRounded(fmt.Sprintf("BF16 gradients of %v", parts), g.BF16(), want)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = s.layer.NewBF16Gradients(&contract.Weights{})
	wantError(t, err, "router has 0 elements")
}

func poisonWeights(w *contract.Weights) {
	fill := func(matrices ...[]contract.BF16) {
		for _, m := range matrices {
			for i := range m {
				m[i] = 0x7FFF
			}
		}
	}
	fill(w.Router, w.SharedGate, w.Shared.Gate, w.Shared.Up, w.Shared.Down)
	for e := range w.Experts {
		fill(w.Experts[e].Gate, w.Experts[e].Up, w.Experts[e].Down)
	}
}

func (s *subject) sameRounded(what string, have *contract.Weights, want *contract.Gradients) {
	s.t.Helper()
	same := func(name string, have []contract.BF16, want []float32, n int) {
		s.t.Helper()
		cast := make([]contract.BF16, len(want))
		for i, v := range want {
			cast[i] = contract.Round(v)
		}
		equal(s, what+": "+name, have, cast, n)
	}
	expert := func(name string, have *contract.Expert, want *contract.ExpertGradient, width int) {
		s.t.Helper()
		same(name+" gate", have.Gate, want.Gate, s.oracle.Hidden)
		same(name+" up", have.Up, want.Up, s.oracle.Hidden)
		same(name+" down", have.Down, want.Down, width)
	}
	same("router", have.Router, want.Router, s.oracle.Hidden)
	same("shared gate", have.SharedGate, want.SharedGate, s.oracle.Hidden)
	for e := range want.Experts {
		expert(fmt.Sprintf("expert %d", e), &have.Experts[e], &want.Experts[e], s.oracle.Width)
	}
	expert("shared expert", have.Shared, want.Shared, s.oracle.SharedWidth)
}
