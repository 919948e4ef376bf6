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
	{1, 64, 8, 8, 1, 42, 0, image.ExpertsDownBwd1x64x1Bf16, &backwardWide},
	{2, 128, 16, 4, 1, 192, image.ExpertsGateUpBwd2x128x1Bf16, image.ExpertsDownBwd2x128x1Bf16, nil},
	{2, 128, 16, 4, 1, math.MaxInt, 0, image.ExpertsDownBwd2x128x1Bf16, &backwardPairs},
}

// Gate and up are read by their columns, of which 512 bytes of a row at a time leave memory a tenth faster than 256.
var (
	backwardWide  = Tiling{2, 64, 8, 5, 1, 42, image.ExpertsGateUpBwd2x64x1Bf16, 0, nil}
	backwardPairs = Tiling{2, 176, 8, 4, 2, math.MaxInt, image.ExpertsGateUpBwd2x176x2Bf16, 0, nil}
)

// What the backward's kernels were compiled with.
const (
	treeThreads  = 128
	leavingBytes = 2 * 64 * 144 // of results on their way out
	takenBytes   = 128          // of what says which work a block has taken
)

// joins says whether gate and up must lie in one, for R1's groups of 16 terms go over the end of the first.
func joins(width int) bool { return width%16 != 0 }
