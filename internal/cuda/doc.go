// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package cuda is the backend for Hopper GPUs (sm_90): the contract's bits from its tensor cores, whose law the contract is.
// The kernels are embedded (package image) and need a driver alone. Tiles, pipelines and the order of launches are free,
// for they change no bit.
package cuda
