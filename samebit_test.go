// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/contract/contracttest"
	"github.com/samebit/samebit/internal/cpu"
	"github.com/samebit/samebit/internal/testgen"
)

// The claim: 256 tokens give one down projection gradient, to the bit, as one batch or as micro-batches of any sizes. Sums in
// the ordinary way, each micro-batch by itself and then together, do not.
func TestSameBits(t *testing.T) {
	one, four, odd := []int{256}, []int{64, 64, 64, 64}, []int{17, 47, 100, 92}
	if a, b, c := fold(t, one), fold(t, four), fold(t, odd); a != b || a != c {
		t.Errorf("the gradient of one stream has bits %x, %x and %x: need one", a[:4], b[:4], c[:4])
	}
	if ordinary(one) == ordinary(four) {
		t.Error("sums of micro-batches agree to the bit: this test's inputs show nothing")
	}
}

var (
	shape, _ = testgen.Shape("tiny")
	weights  = testgen.Weights(shape, 1)
	x, dy    = testgen.Tokens(256, shape.Hidden, 2), testgen.Upstream(256, shape.Hidden, 3)
)

// fold is the hash of the shared expert's down projection gradient after micro-batches of these sizes.
func fold(t *testing.T, sizes []int) [32]byte {
	t.Helper()
	layer, err := samebit.New(shape, &weights, samebit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer layer.Close()
	grads, err := layer.NewGradients(nil)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, n := range sizes {
		from, to := at*shape.Hidden, (at+n)*shape.Hidden
		at += n
		out, err := layer.Forward(x[from:to], samebit.Train)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := layer.Backward(out.Tape, dy[from:to], grads); err != nil {
			t.Fatal(err)
		}
	}
	if err := grads.Flush(); err != nil {
		t.Fatal(err)
	}
	return sum(grads.FP32().Shared.Down)
}

// ordinary is the hash of dy/3 times x over the tokens, the FP32 sum of each micro-batch added to the others..
func ordinary(sizes []int) [32]byte {
	total, at := make([]float32, shape.Hidden), 0
	for _, n := range sizes {
		part := make([]float32, shape.Hidden)
		for ; n > 0; n, at = n-1, at+1 {
			contract.FoldRouter(part, dy[at*shape.Hidden].Float32()/3, x[at*shape.Hidden:][:shape.Hidden])
		}
		for j := range total {
			total[j] += part[j]
		}
	}
	return sum(total)
}

func sum(v []float32) [32]byte {
	b, _ := binary.Append(nil, binary.LittleEndian, v)
	return sha256.Sum256(b)
}

// Every backend that runs on any machine passes the one suite: the CPU's with each instruction set that this machine has,
// then the contract itself, then a GPU's. SAMEBIT_REQUIRE=avx512bf16,avx2,cuda fails where one of those is not there, and where it
// names what nothing knows.
func TestConformance(t *testing.T) {
	for _, kernels := range cpu.Kernels() {
		t.Run("cpu/"+kernels, func(t *testing.T) {
			t.Setenv(cpu.Env, kernels)
			contracttest.Run(t, samebit.Options{Backend: "cpu"})
		})
	}
	t.Run("ref", func(t *testing.T) { contracttest.Run(t, samebit.Options{Backend: "ref"}) })
	t.Run("cuda", func(t *testing.T) {
		b, err := backend.Open("cuda", backend.Options{})
		if need := (*backend.UnsupportedError)(nil); errors.As(err, &need) && !strings.Contains(os.Getenv("SAMEBIT_REQUIRE"), "cuda") {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		contracttest.Run(t, samebit.Options{Backend: "cuda"})
	})
	for _, need := range strings.Split(os.Getenv("SAMEBIT_REQUIRE"), ",") {
		if !slices.Contains(append(cpu.Kernels(), "", "cuda", "nccl", "nvcc", "python", "mpi"), need) {
			t.Errorf("SAMEBIT_REQUIRE names %s: of kernels this machine has %v", need, cpu.Kernels())
		}
	}
}

// No environment variable changes a bit, and none is silently ignored (R14).
func TestKernelsByName(t *testing.T) {
	t.Setenv(cpu.Env, "sse9")
	_, err := samebit.New(shape, &weights, samebit.Options{})
	if want := `, have "sse9"`; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("error %v, want one that ends with %q", err, want)
	}
}
