// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"math"

	"github.com/samebit/samebit/internal/cuda/image"
)

// BackwardTilings is the table for the backward's products: GateUp and Down are the kernels that go back through these. It must
// say what backward_down.cu and backward_gate_up.cu were compiled with. Down's epilogue leaves no room for larger tiles.
var BackwardTilings = [...]Tiling{
	{1, 64, 8, 8, 1, 42, image.ExpertsGateUpBwd1x64x1Bf16, image.ExpertsDownBwd1x64x1Bf16, nil},
	{2, 128, 16, 4, 1, 192, image.ExpertsGateUpBwd2x128x1Bf16, image.ExpertsDownBwd2x128x1Bf16, nil},
	{2, 128, 16, 4, 1, math.MaxInt, image.ExpertsGateUpBwd2x128x1Bf16, image.ExpertsDownBwd2x128x1Bf16, &backwardPairs},
}

var backwardPairs = Tiling{2, 176, 8, 4, 2, math.MaxInt, image.ExpertsGateUpBwd2x176x2Bf16, 0, nil}

// What the backward's kernels were compiled with.
const (
	treeThreads  = 128
	leavingBytes = 2 * 64 * 144 // of results on their way out
	takenBytes   = 128          // of what says which work a block has taken
)

// joins says whether gate and up must lie in one, for R1's groups of 16 terms go over the end of the first.
func joins(width int) bool { return width%16 != 0 }
