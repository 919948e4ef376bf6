// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract

import "math"

// BF16 is a bfloat16 number, kept as its 16 bits: the upper half of a float32.
type BF16 uint16

// NaN as each format writes it (R0). A tensor core and a GPU's FP32 adder give 0x7FFFFFFF; a CPU's adder would pass on
// one of its operands instead, so wherever a NaN can be seen in FP32 the contract names its bits.
const (
	nanBF16 BF16   = 0x7FC0
	nanFP32 uint32 = 0x7FFFFFFF
)

// Round casts f to BF16: round to nearest, ties to even; any NaN gives 0x7FC0 (R0).
func Round(f float32) BF16 {
	b := math.Float32bits(f)
	if b&0x7FFFFFFF > 0x7F800000 {
		return nanBF16
	}
	return BF16((b + 0x7FFF + b>>16&1) >> 16)
}

// Float32 is the exact value of b.
func (b BF16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// Finite reports whether b is neither an infinity nor a NaN.
func (b BF16) Finite() bool { return b&0x7F80 != 0x7F80 }

// Zero reports whether b is zero, of either sign.
func (b BF16) Zero() bool { return b&0x7FFF == 0 }

// finite reports whether f is neither an infinity nor a NaN.
func finite(f float32) bool { return math.Float32bits(f)&0x7F800000 != 0x7F800000 }

// nan gives f, and 0x7FFFFFFF where f is any NaN (R0).
func nan(f float32) float32 {
	if f != f {
		return math.Float32frombits(nanFP32)
	}
	return f
}
