// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import "github.com/samebit/samebit/internal/cuda/driver"

// The kernels' parameters: the twins of params.cuh, field by field. A struct with tensor maps ends at a multiple of 64 bytes
// there, so that here room follows.

type pointer = driver.Pointer

type count struct {
	device pointer // of the token count, or 0
	most   int32
	_      int32
}

type logitsParams struct {
	router, rows                   driver.TensorMap
	x                              pointer
	xPitch                         int64
	partial, logits, z             pointer
	tokens                         count
	hidden, experts, bf16Logits, _ int32
	_                              [64]byte
}

type selectParams struct {
	replay, partial, logits, z, status, ids, weights pointer
	tokens                                           count
	segments, experts, topK, norm, bf16Logits, _     int32
}

type planParams struct {
	ids, offsets, token, slot, row, tiles, tileCount, counts, weights, z, weight pointer
	tokens                                                                       count
	experts, slots, shared, blockTokens, tileMost, tileStep                      int32
	tileCluster, adds                                                            int32
}

type gateUpParams struct {
	routed, shared                                     driver.TensorMap
	x                                                  pointer
	xPitch                                             int64
	token, tiles, tileCount                            pointer
	g, u, sharedG, sharedU, h, sharedH                 pointer
	hidden, experts, width, sharedWidth, blocks, ahead int32
	_                                                  [64]byte
}

type downParams struct {
	routed, shared, routedRows, sharedRows, outRows driver.TensorMap
	tiles, tileCount, out                           pointer
	hidden, experts, width, sharedWidth, blocks     int32
	_                                               [64]byte
}

type combineParams struct {
	row, in, weights, z, status, y pointer
	tokens                         count
	hidden, slots, shared, _       int32
}

type padParams struct {
	from, to       pointer
	rows           int64
	columns, pitch int32
}

type knownParams struct {
	a, b, c, d pointer
	k, _       int32
}

type siluParams struct{ different pointer }

// tile is a Tile of params.cuh.
type tile struct{ group, row, local, rows int32 }

const tileBytes = 16
