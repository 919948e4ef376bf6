// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package testdata carries the hardware's results, and the contract's bits of a layer, into programs, so that each can check
// itself wherever it runs.
package testdata

import _ "embed"

// H200Name is the file of H200.
const H200Name = "tc16-h200.safetensors"

// H200 is a safetensors file of 33,792 dot products as an H200's tensor cores gave them: tensors <kind>.k<K>.{a,b,c,d}, where
// d [64,16] FP32 is c plus a [64,K] times b [16,K] transposed, K walked in ascending steps of 16.
//
//go:embed tc16-h200.safetensors
var H200 []byte

// Qwen3Next is a safetensors file of the contract's bits for layer 1 of the tiny Qwen3-Next checkpoint: what samebit run
// --backward gives for the x and dy beside that checkpoint.
//
//go:embed qwen3-next-tiny.safetensors
var Qwen3Next []byte
