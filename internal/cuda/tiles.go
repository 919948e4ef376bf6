// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"

	"github.com/samebit/samebit/internal/cuda/image"
)

// Tiling is one way of cutting the experts' products; none changes a bit. The tokens of a tile are the matrix instruction's
// N, so one expert's few rows waste little; a stage of the pipeline holds 64 terms of K.
type Tiling struct {
	Copies  int // of 128 rows of weights to a block
	Most    int // tokens of a tile, at most
	Step    int // a tile's tokens are padded to a multiple of this
	Stages  int // of the pipeline
	Cluster int // blocks that take a tile each of one expert, and share its weights
	GateUp  int // kernels of the image
	Down    int
}

// Tilings is the table, by the tokens of a tile. Clusters pay where experts have many rows: below, weights come from memory once as it is. It must say what experts.cu was compiled with.
var Tilings = [...]Tiling{
	{1, 64, 8, 8, 1, image.ExpertsGateUpFwd1x64Bf16, image.ExpertsDownFwd1x64Bf16},
	{2, 128, 16, 4, 1, image.ExpertsGateUpFwd2x128Bf16, image.ExpertsDownFwd2x128Bf16},
	{2, 176, 16, 4, 2, image.ExpertsGateUpFwd2x176Bf16, image.ExpertsDownFwd2x176Bf16},
}

func (t Tiling) String() string {
	return fmt.Sprintf("%d weight rows by up to %d tokens in steps of %d, %d stages, clusters of %d", copyRows*t.Copies, t.Most, t.Step, t.Stages, t.Cluster)
}

// tilingFor chooses from a table for so many tokens: tiles that hold half as many rows again as an expert has on average.
func tilingFor(table []Tiling, tokens, topK, experts int) *Tiling {
	for i := range table {
		if t := &table[i]; 2*t.Most*experts >= 3*tokens*topK {
			return t
		}
	}
	return &table[len(table)-1]
}

// The numbers that kernels were compiled with.
const (
	productThreads = 384
	copyRows       = 128 // of weights, that one copy brings
	stageTerms     = 64
	segmentTokens  = 64
	logitTokens    = 128
	logitExperts   = 176
	routeStages    = 4
	selectThreads  = 256
	planThreads    = 1024
	combineThreads = 256
	countThreads   = 512
	stagingBytes   = 8 * 1152 // of the warps that multiply
)

// What the host chooses between.
const (
	spreadTokens = 256 // up to here each segment of a logit has a block of its own
	planOne      = 128 // up to here one block plans
	planBlock    = 128 // tokens of a block otherwise
)

// ringBytes is the shared memory of a product.
func ringBytes(copies, tokens, stages int) int {
	return stages*2*stageTerms*(copies*copyRows+tokens) + stagingBytes + 128 + 1024
}

func ceil(n, by int) int { return (n + by - 1) / by }
