// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	_ "github.com/samebit/samebit/internal/cuda"
	"github.com/samebit/samebit/internal/testgen"
)

// The public layer gives one result on the CPU and on the GPU, in chunks of any size, with a tape and without.
func TestForward(t *testing.T) {
	s, err := testgen.Shape("mid")
	if err != nil {
		t.Fatal(err)
	}
	w := testgen.Weights(s, 1)
	x := testgen.Tokens(300, s.Hidden, 2)
	cpu, err := samebit.New(s, &w, samebit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cpu.Close()
	want, err := cpu.Forward(x)
	if err != nil {
		t.Fatal(err)
	}
	for _, chunk := range []int{0, 1 << 20, 97, 17} {
		gpu := openLayer(t, s, &w, samebit.Options{MaxTokens: chunk})
		t.Log(gpu.Device())
		for _, options := range [][]samebit.ForwardOption{nil, {samebit.Train}} {
			have, err := gpu.Forward(x, options...)
			if err != nil {
				t.Fatal(err)
			}
			if !sameBits(have.Y, want.Y) || !sameBits(have.Logits, want.Logits) || !sameBits(have.IDs, want.IDs) ||
				!sameBits(have.Weights, want.Weights) {
				t.Errorf("chunks of %d: not the CPU's bits", chunk)
			}
			have.Tape.Free()
		}
	}
}

// openLayer makes the layer on the GPU, or skips where the machine has none, unless SAMEBIT_REQUIRE says that it must.
func openLayer(t *testing.T, s contract.Shape, w *contract.Weights, o samebit.Options) *samebit.Layer {
	t.Helper()
	o.Backend = "cuda"
	l, err := samebit.New(s, w, o)
	if need := (*backend.UnsupportedError)(nil); errors.As(err, &need) && !strings.Contains(os.Getenv("SAMEBIT_REQUIRE"), "cuda") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}
