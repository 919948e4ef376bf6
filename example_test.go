// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit_test

import (
	"fmt"
	"log"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/internal/testgen"
)

// A layer of a Hugging Face folder, forward and backward.
func Example() {
	layer, err := samebit.Open("checkpoint/testdata/qwen3-next-tiny", 1, samebit.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer layer.Close()
	x, dy := testgen.Tokens(64, layer.Shape().Hidden, 1), testgen.Upstream(64, layer.Shape().Hidden, 2)

	out, err := layer.Forward(x, samebit.Train)
	if err != nil {
		log.Fatal(err)
	}
	grads, err := layer.NewGradients(nil)
	if err != nil {
		log.Fatal(err)
	}
	dx, err := layer.Backward(out.Tape, dy, grads) // and further micro-batches
	if err != nil {
		log.Fatal(err)
	}
	if err := grads.Flush(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("y %d, dx %d, expert 3's down projection %d\n", len(out.Y), len(dx), len(grads.FP32().Experts[3].Down))
	fmt.Printf("token 0 went to experts %v; %d experts without a token\n", out.IDs[:4], out.Load().Dead)
	// Output:
	// y 8192, dx 8192, expert 3's down projection 8192
	// token 0 went to experts [13 7 14 3]; 0 experts without a token
}
