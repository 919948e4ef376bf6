// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit_test

import (
	"errors"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/internal/testgen"
)

// A workspace is for GPUs: other backends say so.
func TestWorkspaceNeedsADevice(t *testing.T) {
	s, err := testgen.Shape("tiny")
	if err != nil {
		t.Fatal(err)
	}
	w := testgen.Weights(s, 1)
	for _, backend := range []string{"cpu", "ref"} {
		l, err := samebit.New(s, &w, samebit.Options{Backend: backend})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.NewWorkspace(8); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: got %v, want errors.ErrUnsupported", backend, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A forward without Train has no tape, and whoever has none need not ask.
func TestNoTape(t *testing.T) {
	var none *samebit.Tape
	none.Free()
	if n := none.Bytes(); n != 0 {
		t.Errorf("%d bytes", n)
	}
}

// A tape for recomputation holds what the documentation of Options.Recompute says.
func TestTapeBytes(t *testing.T) {
	s, err := testgen.Shape("mid")
	if err != nil {
		t.Fatal(err)
	}
	w := testgen.Weights(s, 1)
	const n = 100
	// x, logits, z and status; ids and weights; token, slot and row of each row.
	routes := 2*s.Hidden + 4*s.Experts + 8 + 8*s.TopK + 12*(s.TopK+1)
	for recompute, a := range map[bool]int{false: routes + 10*(s.TopK*s.Width+s.SharedWidth), true: routes} {
		l, err := samebit.New(s, &w, samebit.Options{Recompute: recompute})
		if err != nil {
			t.Fatal(err)
		}
		out, err := l.Forward(testgen.Tokens(n, s.Hidden, 2), samebit.Train)
		if err != nil {
			t.Fatal(err)
		}
		if have, want := out.Tape.Bytes(), int64(n*a+4*(s.Experts+2)); have != want {
			t.Errorf("recompute %t: a tape of %d bytes, want %d", recompute, have, want)
		}
		out.Tape.Free()
		out.Tape.Free()
		if n := out.Tape.Bytes(); n != 0 {
			t.Errorf("recompute %t: a freed tape of %d bytes", recompute, n)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
