// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"math"
	"slices"

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
	Rows    int // of an expert, on average, up to which this is taken
	GateUp  int // kernels of the image
	Down    int
	Other   *Tiling // GateUp's, where it is not Down's
}

// Tilings is the table, by an expert's rows. Pairs of blocks pay where an expert has two tiles or more, as a rule: below, weights come from
// memory once as it is, and two blocks would wait for one another for nothing. It must say what experts.cu was compiled with.
var Tilings = [...]Tiling{
	{1, 64, 8, 8, 1, 42, image.ExpertsGateUpFwd1x64x1Bf16, image.ExpertsDownFwd1x64x1Bf16, nil},
	{2, 128, 16, 4, 1, 85, image.ExpertsGateUpFwd2x128x1Bf16, image.ExpertsDownFwd2x128x1Bf16, nil},
	{2, 176, 8, 4, 1, 192, image.ExpertsGateUpFwd2x176x1Bf16, image.ExpertsDownFwd2x176x1Bf16, nil},
	{2, 176, 8, 4, 2, math.MaxInt, image.ExpertsGateUpFwd2x176x2Bf16, image.ExpertsDownFwd2x176x2Bf16, nil},
}

// tilesAlike says whether an expert's rows are cut into the same tiles by both.
func (t *Tiling) tilesAlike(other *Tiling) bool {
	return t.Most == other.Most && t.Step == other.Step && t.Cluster == other.Cluster
}

func (t Tiling) String() string {
	return fmt.Sprintf("%d weight rows by up to %d tokens in steps of %d, %d stages, clusters of %d", copyRows*t.Copies, t.Most, t.Step, t.Stages, t.Cluster)
}

// tilingFor chooses from a table for so many tokens.
func tilingFor(table []Tiling, tokens, topK, experts int) *Tiling {
	i := slices.IndexFunc(table, func(t Tiling) bool { return tokens*topK/experts <= t.Rows })
	return &table[i]
}

// The numbers that kernels were compiled with.
const (
	productThreads = 384
	copyRows       = 128 // of weights, that one copy brings
	stageTerms     = 64
	segmentTokens  = 64
	logitTokens    = 128
	logitFew       = 48
	logitMany      = 176
	routeStages    = 4
	selectThreads  = 256
	planThreads    = 1024
	combineThreads = 256
	countThreads   = 512
	stagingBytes   = 8 * 1152 // of the warps that multiply
)

// What the host chooses between.
const (
	spreadTokens = 128  // up to here each segment of a logit has a block of its own
	fewTokens    = 3072 // up to here a block of logits has few experts
	planOne      = 128  // up to here one block plans
	planBlock    = 128  // tokens of a block otherwise
	planAdds     = 32   // up to so many blocks' counts are added by the one that lays out
)

// ringBytes is the shared memory of a product, but for what it has behind its ring.
func ringBytes(copies, tokens, stages int) int {
	return stages*2*stageTerms*(copies*copyRows+tokens) + 128 + 1024
}

func ceil(n, by int) int { return (n + by - 1) / by }
