// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contracttest

import (
	"math"
	"slices"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
)

func repeat(v float32, n int) []float32 { return slices.Repeat([]float32{v}, n) }

// routing: ties, extremes, tokens that are not finite, replay.
func routing(t *testing.T, o samebit.Options) {
	for _, norm := range []bool{true, false} {
		shape := small
		shape.NormTopK = norm
		routingOf(t, o, shape)
	}
	bf16Ties(t, o)
	allEqual(t, o)
}

func routingOf(t *testing.T, o samebit.Options, shape contract.Shape) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	e := shape.Experts
	s := open(t, o, shape, identity(shape, weights(shape, 11)))
	x, dy := tokens(16, shape, 12)
	x = withLogits(shape, x,
		repeat(0, e), repeat(1.5, e), // all equal
		append([]float32{3, 2}, repeat(1, e-2)...), // a tie at the boundary alone
		append(repeat(1, e-1), 1.0078125),
		[]float32{-9, -8.5, -8, -8, -8.25, -9, -8, -8.5, -8.75, -9, -9, -8},
		repeat(1e38, e), append(repeat(-3e38, e-1), 3e38),
		[]float32{0, float32(math.Copysign(0, -1)), 0, float32(math.Copysign(0, -1)), -1, -1, -1, -1, -1, -1, -1, -1},
		repeat(nan, e), append([]float32{nan}, repeat(1, e-1)...), append(repeat(1, e-1), inf), repeat(-inf, e),
		repeat(-1e-40, e), // subnormal
	)
	x = append(x, testTail(shape)...)
	dy = dy[:len(x)]
	s.check("logits", x, dy, nil)

	out, err := s.layer.Forward(x)
	rejected := (*samebit.RejectedError)(nil)
	if !as(err, &rejected) || rejected.Tokens != 4 || rejected.First != 8 {
		t.Errorf("tokens that are not finite: error %v, want 4 tokens rejected, the first token 8", err)
	}
	if out == nil || out.IDs[8*shape.TopK] != -1 || out.Y[8*shape.Hidden] != 0x7FC0 {
		t.Error("a rejected token: want ids -1 and a y of NaN beside the error")
	}

	// Replay: not the live top k, in an order of its own; rows of -1 first, within and last.
	r := seeded(13)
	var ids []int32
	for i := range len(x) / shape.Hidden {
		perm := r.Perm(e)
		for k := range shape.TopK {
			id := int32(perm[k])
			if i == 0 || i == 7 || i == 8 || i == len(x)/shape.Hidden-1 {
				id = -1
			}
			ids = append(ids, id)
		}
	}
	s.check("replay", x, dy, ids)

	for _, bad := range []struct {
		change func([]int32) []int32
		want   string
	}{
		{func(ids []int32) []int32 { ids[shape.TopK+1] = ids[shape.TopK]; return ids }, "twice"},
		{func(ids []int32) []int32 { ids[shape.TopK] = int32(e); return ids }, "need 0 to 11"},
		{func(ids []int32) []int32 { ids[shape.TopK] = -2; return ids }, "need 0 to 11"},
		{func(ids []int32) []int32 { ids[shape.TopK+2] = -1; return ids }, "in part"},
		{func(ids []int32) []int32 { return ids[1:] }, "need 42"},
	} {
		_, err := s.layer.Forward(x, samebit.Replay(bad.change(slices.Clone(ids))))
		wantError(t, err, bad.want)
	}

	// The live routes, replayed, are the live result.
	live := s.want(x[:8*shape.Hidden], dy[:8*shape.Hidden], nil)
	s.same("live routes replayed", s.have(x[:8*shape.Hidden], dy[:8*shape.Hidden], live.ids), live)
}

// testTail is one ordinary token.
func testTail(s contract.Shape) []contract.BF16 {
	x, _ := tokens(1, s, 99)
	return x
}

// bf16Ties: logits of 1+1/512 and 1 are equal once rounded to BF16; each precision has one answer at every T.
func bf16Ties(t *testing.T, o samebit.Options) {
	shape := contract.Shape{Hidden: 16, Experts: 4, TopK: 1, Width: 16, NormTopK: true}
	w := weights(shape, 14)
	clear(w.Router)
	w.Router[0], w.Router[16], w.Router[17] = 0x3F80, 0x3F80, 0x3B00 // logits x0 and x0 + x1/512
	for precision, want := range map[samebit.Precision]int32{samebit.FP32: 1, samebit.BF16Logits: 0} {
		o.RouterLogits = precision
		s := open(t, o, shape, w)
		for n := 1; n <= 17; n++ {
			x, dy := tokens(n, shape, 15)
			for i := range n {
				x[i*16], x[i*16+1] = 0x3F80, 0x3F80
			}
			if got := s.have(x, dy, nil).ids[n-1]; got != want {
				t.Errorf("logits 1 and 1+1/512, precision %d, %d tokens: expert %d, want %d", precision, n, got, want)
			}
			s.check("logits 1 and 1+1/512", x, dy, nil)
		}
	}
}

// allEqual: experts 0 to K-1 and weights of 1/K, to the bit.
func allEqual(t *testing.T, o samebit.Options) {
	for _, k := range []int{1, 3, 10, 12} {
		shape := small
		shape.TopK = k
		w := weights(shape, 16)
		clear(w.Router)
		x, _ := tokens(2, shape, 17)
		out, err := open(t, o, shape, w).layer.Forward(x)
		if err != nil {
			t.Fatal(err)
		}
		for i := range out.IDs {
			if out.IDs[i] != int32(i%k) || out.Weights[i] != 1/float32(k) {
				t.Fatalf("equal logits, top-%d, slot %d: expert %d of weight %v, want %d and %v", k, i%k, out.IDs[i], out.Weights[i], i%k, 1/float32(k))
			}
		}
	}
}
