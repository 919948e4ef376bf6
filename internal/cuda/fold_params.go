// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import "github.com/samebit/samebit/internal/cuda/driver"

// The fold's parameters: the twins of fold.cuh, field by field.

const (
	foldParts = 5
	foldCalls = 32 // that one launch indexes

	foldRouterShared = 8 * (32*(2*64+4) + 16)
	foldThreads      = 384
	foldStages       = 4
	foldStageBytes   = 64 * 2 * (256 + 128)
	foldStagedBytes  = 2 * 2 * 64 * 128
	foldBarsBytes    = 1536
	foldOutRows      = 16 // of a strip of BF16 gradients
	foldSlabRows     = 16 // of a slab of FP32 sums
	foldSlabStrips   = 4
)

type foldCall struct {
	offsets, token, x, dy, dgate, dup, hw, sharedDGate, sharedDUp, sharedHW pointer
}

func (c *foldCall) places() [10]*pointer {
	return [...]*pointer{&c.offsets, &c.token, &c.x, &c.dy, &c.dgate, &c.dup, &c.hw, &c.sharedDGate, &c.sharedDUp, &c.sharedHW}
}

type foldIndexParams struct {
	calls                                                   [foldCalls]foldCall
	waiting, before, count, start, base, order, state, rows pointer
	store                                                   pointer
	places                                                  int64
	first, callsHere, last, whole, every                    int32
	experts, sharedGroup, hidden, width, sharedWidth        int32
	blocks, _                                               int32
}

type foldParams struct {
	routed, shared, toHidden, toWidth, toShared driver.TensorMap
	out, sums, order, state, rows               pointer
	places                                      int64
	experts, hidden, width, sharedWidth         int32
	hiddenPitch, widthPitch, sharedPitch        int32
	_                                           [64]byte
}

type foldRouterParams struct {
	offsets, token, slot, row, dlogits, dz, x, router, sharedGate pointer
	tokens                                                        count
	experts, slots, hidden, pitch, shared, _                      int32
}

type foldRoundParams struct {
	from, to pointer
	n        int64
}

const foldWorkBytes, foldStateBytes = 16, 16

// foldCountBytes is the memory of what the kernels count.
func foldCountBytes(groups int) int { return (foldWorkBytes+4*4)*groups + foldStateBytes }
