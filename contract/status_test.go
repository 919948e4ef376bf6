// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/samebit/samebit/contract"
)

// checkWorkless demands what a token that is not live gives: ids -1, weights +0, y all of one value, dx +0 and no
// gradient, not even where dy is NaN (R3, R13).
func checkWorkless(t *testing.T, what string, l *contract.Layer, token contract.Token, status contract.Status, y contract.BF16) {
	t.Helper()
	if token.Status != status {
		t.Errorf("%s: status %d: want %d", what, token.Status, status)
	}
	sameBits(t, what+": ids", l.TopK, token.IDs, slices.Repeat([]int32{-1}, l.TopK))
	sameBits(t, what+": weights", l.TopK, token.Weights, make([]float32, l.TopK))
	sameBits(t, what+": y", l.Hidden, token.Y, repeated(y, l.Hidden))
	if len(token.Logits) != l.Experts || len(token.G) != 0 {
		t.Errorf("%s: %d logits and %d expert rows: need %d and none", what, len(token.Logits), len(token.G), l.Experts)
	}
	for _, v := range []contract.BF16{one, nan} {
		grads := l.NewGradients()
		dx := l.Backward(token, repeated(v, l.Hidden), grads)
		grads.Flush()
		sameBits(t, what+": dx", l.Hidden, dx, repeated(0, l.Hidden))
		sameBits(t, what+": gradients", l.Hidden, everyGradient(grads), everyGradient(l.NewGradients()))
	}
}

// TestRejected: one number that is not finite, in a logit or in the shared gate's, rejects the token (R13).
func TestRejected(t *testing.T) {
	bothModes(func(s contract.Shape) {
		r := rand.New(rand.NewPCG(8, 16))
		l := randomLayer(r, s)
		for _, v := range []contract.BF16{nan, 0xFF81, inf, inf | sign} {
			for _, at := range []int{0, s.Hidden - 1} {
				x := normals(r, s.Hidden, 1)
				x[at] = v
				token := l.Forward(x, nil)
				checkWorkless(t, fmt.Sprintf("x[%d] = %s", at, show(v)), l, token, contract.Rejected, nan)
				checkWorkless(t, "the same, replayed", l, l.Forward(x, []int32{3, 1, 0, 5}), contract.Rejected, nan)
				for e, v := range token.Logits {
					if v != v {
						same(t, fmt.Sprintf("the NaN of logit %d", e), v, f32(0x7FFFFFFF))
					}
				}
			}
		}
		// Logits that are finite, and a z that overflows.
		l.Weights.SharedGate = repeated(power(127), s.Hidden)
		token := l.Forward(repeated(power(1), s.Hidden), nil)
		checkWorkless(t, "z is Inf", l, token, contract.Rejected, nan)
		same(t, "z", token.Z, f32(0x7F800000))
	})
}

// TestBF16Logits: the option rounds every logit and z, before the tie is broken and before a token is judged (R2).
func TestBF16Logits(t *testing.T) {
	s := contract.Shape{Hidden: 4, Experts: 3, TopK: 2, Width: 2, SharedWidth: 2, NormTopK: true}
	l := randomLayer(rand.New(rand.NewPCG(9, 16)), s)
	l.Weights.Router = []contract.BF16{one, 0, 0, 0, one, power(-9), 0, 0, one, 0, power(-9), 0}
	l.Weights.SharedGate = []contract.BF16{one, power(-8), 0, power(-10)}
	x := repeated(one, s.Hidden)
	for _, c := range []struct {
		bf16   bool
		logits []float32
		z      float32
		ids    []int32
	}{
		{false, []float32{1, 1 + 0x1p-9, 1 + 0x1p-9}, 1 + 0x1p-8 + 0x1p-10, []int32{1, 2}},
		{true, []float32{1, 1, 1}, 1 + 0x1p-7, []int32{0, 1}},
	} {
		l.BF16Logits = c.bf16
		token := l.Forward(x, nil)
		what := fmt.Sprintf("BF16Logits %t", c.bf16)
		sameBits(t, what+": logits", s.Experts, token.Logits, c.logits)
		same(t, what+": z", token.Z, c.z)
		sameBits(t, what+": ids", s.TopK, token.IDs, c.ids)
	}
	// A logit beyond BF16's range is finite in FP32 alone.
	l.Weights.Router[0], l.Weights.Router[1], l.Weights.Router[2] = 0x7F7F, power(119), power(118)
	for _, bf16 := range []bool{false, true} {
		l.BF16Logits = bf16
		want := map[bool]contract.Status{false: contract.Live, true: contract.Rejected}[bf16]
		if token := l.Forward(x, nil); token.Status != want {
			t.Errorf("BF16Logits %t: logits %v: status %d: want %d", bf16, token.Logits, token.Status, want)
		}
	}
	same(t, "a NaN logit rounded to BF16", contract.Logit([]contract.BF16{nan}, []contract.BF16{one}, true), f32(0x7FFFFFFF))
}

// TestPadding: a replayed row of -1 does no work, has logits, and is never rejected (R3).
func TestPadding(t *testing.T) {
	bothModes(func(s contract.Shape) {
		r := rand.New(rand.NewPCG(10, 16))
		l := randomLayer(r, s)
		padding := slices.Repeat([]int32{-1}, s.TopK)
		x := normals(r, s.Hidden, 1)
		token := l.Forward(x, padding)
		checkWorkless(t, "padding", l, token, contract.Padding, 0)
		live := l.Forward(x, nil)
		sameBits(t, "padding: logits", s.Experts, token.Logits, live.Logits)
		same(t, "padding: z", token.Z, live.Z)
		checkWorkless(t, "padding of NaN", l, l.Forward(repeated(nan, s.Hidden), padding), contract.Padding, 0)
		if padding[0] != -1 {
			t.Error("the caller's ids were changed")
		}
	})
}

// TestZeroUpstream: a token whose dy is zero throughout, of either sign, gives dx = +0 and no gradient (R9).
func TestZeroUpstream(t *testing.T) {
	bothModes(func(s contract.Shape) {
		r := rand.New(rand.NewPCG(11, 16))
		l := randomLayer(r, s)
		token := l.Forward(normals(r, s.Hidden, 1), nil)
		dy := repeated(0, s.Hidden)
		for j := range dy {
			dy[j] = contract.BF16(j%2) << 15
		}
		grads := l.NewGradients()
		sameBits(t, "dx", s.Hidden, l.Backward(token, dy, grads), repeated(0, s.Hidden))
		grads.Flush()
		sameBits(t, "gradients", s.Hidden, everyGradient(grads), everyGradient(l.NewGradients()))
		// One subnormal is not zero throughout.
		dy[3] = 0x8001
		if contract.AllZero(dy) {
			t.Error("a subnormal counts as zero")
		}
		// Every dy counts, a zero between others too: the row is in the stream.
		dy[3] = one
		l.Backward(token, dy, grads)
		grads.Flush()
		if slices.Equal(everyGradient(grads), everyGradient(l.NewGradients())) {
			t.Error("a token with one nonzero dy gave no gradient")
		}
	})
}
