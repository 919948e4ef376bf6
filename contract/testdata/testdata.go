// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package testdata carries the hardware's results into programs, so that each can check the law of R1 wherever it runs.
package testdata

import _ "embed"

// H200Name is the file of H200.
const H200Name = "tc16-h200.safetensors"

// H200 is a safetensors file of 33,792 dot products as an H200's tensor cores gave them: tensors <kind>.k<K>.{a,b,c,d}, where
// d [64,16] FP32 is c plus a [64,K] times b [16,K] transposed, K walked in ascending steps of 16.
//
//go:embed tc16-h200.safetensors
var H200 []byte
