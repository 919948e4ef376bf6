// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import "github.com/samebit/samebit/internal/cuda/driver"

// The parameters of the backward's kernels: the twins of backward.cuh, as in params.go.

type liveParams struct {
	dy, ids, live pointer
	tokens        count
	hidden, slots int32
}

type placesParams struct {
	row, forward, offsets, place, taken pointer
	tokens                              count
	experts, slots, begun, _            int32
}

type downBackwardParams struct {
	routed, shared                                        driver.TensorMap
	dy                                                    pointer
	dyPitch                                               int64
	token, place, weight, tiles, tileCount, taken         pointer
	g, u, sharedG, sharedU                                pointer
	dg, du, hw, sharedDG, sharedDU, sharedHW, partial     pointer
	hidden, experts, width, sharedWidth, blocks, partials int32
	whole, ahead                                          int32
	_                                                     [64]byte
}

type treeParams struct {
	offsets, partial, dweight             pointer
	experts, width, sharedWidth, partials int32
}

type gateUpBackwardParams struct {
	routed, shared                                                         driver.TensorMap
	routedRows, sharedRows                                                 [2]driver.TensorMap
	outRows                                                                driver.TensorMap
	tiles, tileCount, out                                                  pointer
	hidden, experts, width, sharedWidth, parts, sharedParts, blocks, ahead int32
	_                                                                      [64]byte
}

type joinParams struct {
	first, second, to pointer
	rows              int64
	columns, pitch    int32
}

type routeBackwardParams struct {
	row, ids, dweight, logits, weights, z, dlogits, dz pointer
	tokens                                             count
	experts, slots, shared, room                       int32
}

type inputParams struct {
	row, ids, in, dlogits, dz, router, dx pointer
	routerPitch                           int64
	tokens                                count
	hidden, experts, slots, shared        int32
}
