// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package bits says whether two tensors are the same, bit for bit, and if not, where.
//
// The same means: dtype, shape and every byte. So -0 differs from +0, and a NaN from a NaN of another payload. There is no
// tolerance. NaN and infinity are refused even where both tensors have them, unless they are asked for, so that two broken
// results do not pass for one right one.
//
// A tensor's digest is the SHA-256 of one line of text, its dtype and shape, and of its bytes as a safetensors file has
// them, row-major and little-endian. Anyone can recompute it; for a y of BF16 [24,128] whose bytes are in y.bin:
//
//	(printf 'BF16 [24,128]\n'; cat y.bin) | sha256sum
package bits

import (
	"strconv"
	"strings"

	"github.com/samebit/samebit/checkpoint/safetensors"
)

// Of is the tensor of elements v, sharing their memory.
func Of[T safetensors.Element](name string, shape []int, v []T) safetensors.Tensor {
	out := safetensors.New(name, shape, v)
	return safetensors.Tensor{Name: name, Dtype: out.Dtype, Shape: shape, Data: out.Parts[0]}
}

// Kind is a tensor's dtype and shape as a digest and messages have them: BF16 [24,128].
func Kind(d safetensors.Dtype, shape []int) string { return string(d) + " " + List(shape) }

// List is a shape, or coordinates: [24,128].
func List(v []int) string {
	var words []string
	for _, n := range v {
		words = append(words, strconv.Itoa(n))
	}
	return "[" + strings.Join(words, ",") + "]"
}
