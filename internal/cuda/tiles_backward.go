// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"math"

	"github.com/samebit/samebit/internal/cuda/image"
)

// BackwardTilings is the table for the backward's products: GateUp and Down are the kernels that go back through these. It must
// say what backward_down.cu and backward_gate_up.cu were compiled with.
var BackwardTilings = [...]Tiling{
	{1, 64, 8, 8, 1, 42, image.ExpertsGateUpBwd1x64Bf16, image.ExpertsDownBwd1x64Bf16},
	{2, 128, 16, 4, 1, math.MaxInt, image.ExpertsGateUpBwd2x128Bf16, image.ExpertsDownBwd2x128Bf16},
}

// What the backward's kernels were compiled with.
const (
	treeThreads  = 128
	leavingBytes = 2 * 64 * 144 // of results on their way out
)

// joins says whether gate and up must lie in one, for R1's groups of 16 terms go over the end of the first.
func joins(width int) bool { return width%16 != 0 }
