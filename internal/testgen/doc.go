// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package testgen makes inputs that are the same everywhere: weights, tokens, upstream gradients, checkpoint folders.
//
// A value is a function of (seed, stream, i) alone, in integers, so any rank, thread or GPU can make any part of a tensor by itself.
// With 64-bit unsigned arithmetic that wraps around:
//
//	mix(z):  z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
//	         z = (z ^ z>>27) * 0x94D049BB133111EB
//	         return z ^ z>>31
//	key    = mix(seed + 0x9E3779B97F4A7C15) ^ mix(stream + 0xD1B54A32D192ED03)
//	word j = mix(key + (j+1)*0x9E3779B97F4A7C15)
//
// Word j makes values 2j and 2j+1: with b0, the lowest byte, to b7,
//
//	value 2j   = bf16((b0+b1+b2+b3 - 510) * 2^-scale)
//	value 2j+1 = bf16((b4+b5+b6+b7 - 510) * 2^-scale)
//
// where bf16 rounds to nearest even. The sum of four bytes is a bell: mean 0, standard deviation 147.8 * 2^-scale, largest
// magnitude 510 * 2^-scale. The scale is 0 to 100; so no value is subnormal.
//
// A stream is 64 bits: layer<<32 | role<<24 | expert. The roles 1 to 5 are checkpoint.Role's (router, shared gate, gate, up, down);
// the shared expert's gate, up and down are 6, 7 and 8; tokens 16; upstream gradients 17. The expert is 0 where there is none.
package testgen
