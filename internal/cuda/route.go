// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/cuda/image"
)

// Route is R2, R3, R4 and R13: the logits' product, then selection, status and weights.
func (l *layer) Route(a backend.Route) error {
	if a.Tokens == 0 {
		return nil
	}
	if a.Tokens > mostTokens {
		return fmt.Errorf("cuda: %d tokens in one call: need at most %d", a.Tokens, mostTokens)
	}
	l.stages.Lock()
	defer l.stages.Unlock()
	s := &launches{layer: l}
	x, pitch := s.aligned(&l.x, bf16(a.X), a.Tokens, l.Hidden)
	logits := logitsParams{router: l.w.routerMap, x: x, xPitch: int64(pitch), logits: fp32(a.Logits), z: fp32(a.Z),
		tokens: l.count(a.Tokens), hidden: int32(pitch), experts: int32(l.Experts), bf16Logits: l.bf16Logits}
	choose := selectParams{replay: i32(a.Replay), logits: fp32(a.Logits), z: fp32(a.Z), status: i32(a.Status), ids: i32(a.IDs),
		weights: fp32(a.Weights), tokens: l.count(a.Tokens), experts: int32(l.Experts), topK: int32(l.TopK), bf16Logits: l.bf16Logits}
	if l.NormTopK {
		choose.norm = 1
	}
	if a.Tokens <= spreadTokens {
		grid := [3]int{ceil(l.Experts+1, copyRows), ceil(a.Tokens, segmentTokens), ceil(pitch, contract.LogitSegment)}
		logits.partial = s.scratch(&l.partial, 4*grid[2]*a.Tokens*(l.Experts+1))
		choose.partial, choose.segments = logits.partial, int32(grid[2])
		run(s, image.RouteSegmentsFwdBf16, grid, productThreads, ringBytes(1, segmentTokens, routeStages), &logits)
		run(s, l.held(image.RouteSelectSpread512F32, image.RouteSelectSpread2048F32), [3]int{a.Tokens}, selectThreads, 4*(3*l.Experts+2), &choose)
		return s.err
	}
	kernel, experts := image.RouteLogitsFwdManyBf16, logitMany
	if a.Tokens <= fewTokens {
		kernel, experts = image.RouteLogitsFwdFewBf16, logitFew
	}
	logits.rows, logits.router = s.rows(x, a.Tokens, pitch, logitTokens), s.rows(l.w.router, l.Experts+1, pitch, experts)
	run(s, kernel, [3]int{ceil(l.Experts+1, experts), ceil(a.Tokens, logitTokens)}, productThreads, ringBytes(1, experts, routeStages), &logits)
	warps := min(8, max(1, 200<<10/(12*l.Experts)))
	run(s, l.held(image.RouteSelect512F32, image.RouteSelect2048F32), [3]int{ceil(a.Tokens, warps)}, 32*warps, warps*12*l.Experts, &choose)
	return s.err
}

// held is the kernel whose warps hold enough logits.
func (l *layer) held(upTo512, upTo2048 int) int {
	if l.Experts <= 512 {
		return upTo512
	}
	return upTo2048
}
