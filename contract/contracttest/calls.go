// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contracttest

import (
	"errors"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
)

// calls: what a call must refuse, and options that change what is computed.
func calls(t *testing.T, o samebit.Options) {
	w := weights(small, 61)
	x, dy := tokens(20, small, 62)
	s := open(t, o, small, w)

	// norm_topk_prob either way, whatever the shape says.
	for _, norm := range []bool{true, false} {
		o, shape := o, small
		o.NormTopK, shape.NormTopK = &norm, norm
		opposite := small
		opposite.NormTopK = !norm
		other := open(t, o, opposite, w)
		other.oracle.Shape = shape
		other.check("NormTopK by option", x, dy, nil)
	}

	// Replay and rejected tokens across chunks of a call.
	chunked := o
	chunked.MaxTokens = 7
	cut := open(t, chunked, small, w)
	r := seeded(63)
	var ids []int32
	for range 20 {
		for _, e := range r.Perm(small.Experts)[:small.TopK] {
			ids = append(ids, int32(e))
		}
	}
	cut.check("replay in chunks", x, dy, ids)
	bad := append([]contract.BF16(nil), x...)
	bad[9*small.Hidden], bad[16*small.Hidden+3] = 0x7F80, 0x7FC0
	_, err := cut.layer.Forward(bad)
	rejected := (*samebit.RejectedError)(nil)
	if !errors.As(err, &rejected) || rejected.Tokens != 2 || rejected.First != 9 {
		t.Errorf("error %v, want 2 tokens rejected, the first token 9", err)
	}

	// A NaN among BF16 logits keeps its FP32 bits.
	rounded := o
	rounded.RouterLogits = samebit.BF16Logits
	open(t, rounded, small, w).check("a NaN among BF16 logits", bad, dy, nil)

	// Refusals.
	tape := func(s *subject) *samebit.Tape {
		out, err := s.layer.Forward(x, samebit.Train)
		if err != nil {
			t.Fatal(err)
		}
		return out.Tape
	}
	_, err = s.layer.Backward(tape(cut), dy, nil)
	wantError(t, err, "no tape of this layer")
	foreign, err := cut.layer.NewGradients(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.layer.Backward(tape(s), dy, foreign)
	wantError(t, err, "gradients of another layer")
	freed := tape(s)
	freed.Free()
	freed.Free()
	_, err = s.layer.Backward(freed, dy, nil)
	wantError(t, err, "the tape was freed")
	_, err = s.layer.Forward(x, samebit.Replay(nil))
	wantError(t, err, "replay has 0 ids: need 60")
	odd := o
	odd.RouterLogits = 7
	_, err = samebit.New(small, w, odd)
	wantError(t, err, "RouterLogits 7")

	notFinite := weights(small, 64)
	notFinite.SharedGate[2] = 0xFF80
	_, err = samebit.New(small, notFinite, o)
	wantError(t, err, "shared gate has -Inf at 2")

	refused(t, o, x, dy)
}

// refused: a layer whose Refresh was refused, and one that is closed, answer with an error; another Refresh helps the first.
func refused(t *testing.T, o samebit.Options, x, dy []contract.BF16) {
	w := weights(small, 65)
	s := open(t, o, small, w)
	was := w.Router[5]
	w.Router[5] = 0x7FC0
	wantError(t, s.layer.Refresh(), "router has NaN at 5")
	_, err := s.layer.Forward(x)
	wantError(t, err, "weights were refused")
	w.Router[5] = was
	if err := s.layer.Refresh(); err != nil {
		t.Fatal(err)
	}
	s.check("refreshed after a refusal", x, dy, nil)

	out, err := s.layer.Forward(x, samebit.Train)
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.layer.NewGradients(nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.layer.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, forward := s.layer.Forward(x)
	_, backward := s.layer.Backward(out.Tape, dy, g)
	_, gradients := s.layer.NewGradients(nil)
	for _, err := range []error{forward, backward, gradients, g.Flush(), s.layer.Refresh()} {
		wantError(t, err, "the layer is closed")
	}
}
