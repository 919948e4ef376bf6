// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract

import (
	"math"
	"math/bits"
)

// The numbers of the tensor core's law (R1), as measured on an H200.
const (
	group      = 16   // products that one step sums
	fraction   = 25   // a term is cut to a multiple of 2^(M-25), M the largest exponent among the terms
	minScale   = -133 // M is never below this
	minExpBF16 = -126 // a subnormal's exponent: subnormals are not normalised
	minStep    = -149 // FP32's smallest step is 2^-149
)

// TC16 is one step of a Hopper tensor core: acc plus the products of a and b, at most 16 of each (a missing pair is
// zero). Every term is truncated toward zero to a multiple of 2^(M-25), the terms are summed exactly, and the sum is
// rounded toward zero to FP32 (R1). The order of the pairs cannot matter.
func TC16(acc float32, a, b []BF16) float32 {
	if len(a) != len(b) || len(a) > group {
		panic("contract: TC16 takes as many a as b, and at most 16")
	}
	if special, is := tc16Special(acc, a, b); is {
		return special
	}
	var significands [group]int32
	var exponents [group]int
	scale := minScale
	for i := range a {
		sa, ea := split16(a[i])
		sb, eb := split16(b[i])
		significands[i], exponents[i] = sa*sb, ea+eb
		if significands[i] != 0 {
			scale = max(scale, exponents[i])
		}
	}
	sacc, eacc := split32(acc)
	if sacc != 0 {
		scale = max(scale, eacc)
	}
	// In units of 2^(scale-25): a product's integer stands for 2^(e-14), the accumulator's for 2^(e-23).
	sum := shift(int64(sacc), eacc-23-scale+fraction)
	for i := range a {
		sum += shift(int64(significands[i]), exponents[i]-14-scale+fraction)
	}
	return roundToZero(sum, scale-fraction)
}

// TCDot is the dot product of a and b: K walked in ascending groups of 16 from an accumulator of +0 (R1).
func TCDot(a, b []BF16) float32 {
	var acc float32
	for len(a) > group {
		acc = TC16(acc, a[:group], b[:group])
		a, b = a[group:], b[group:]
	}
	return TC16(acc, a, b)
}

// TCDotSegments cuts K into segments of s terms, each a TCDot of its own, and adds them in ascending order, rounding to
// nearest even, so that truncation cannot build up (R1).
func TCDotSegments(a, b []BF16, s int) float32 {
	var sum float32
	for len(a) > s {
		sum = nan(sum + TCDot(a[:s], b[:s]))
		a, b = a[s:], b[s:]
	}
	return nan(sum + TCDot(a, b))
}

// tc16Special gives the result where a NaN or an infinity takes part: 0x7FFFFFFF for any NaN, Inf*0 or Inf-Inf, else
// the infinity.
func tc16Special(acc float32, a, b []BF16) (float32, bool) {
	sum, special := acc, !finite(acc)
	for i := range a {
		if !a[i].Finite() || !b[i].Finite() {
			special = true
			sum += float32(a[i].Float32() * b[i].Float32())
		}
	}
	return nan(sum), special
}

// split16 gives v's signed significand and exponent: v = significand * 2^(exponent-7).
func split16(v BF16) (significand int32, exponent int) {
	significand, exponent = int32(v&0x7F), minExpBF16
	if e := int(v >> 7 & 0xFF); e > 0 {
		significand, exponent = significand|0x80, e-127
	}
	if v>>15 == 1 {
		significand = -significand
	}
	return significand, exponent
}

// split32 gives v's signed significand and exponent: v = significand * 2^(exponent-23).
func split32(v float32) (significand int32, exponent int) {
	b := math.Float32bits(v)
	significand, exponent = int32(b&0x7FFFFF), minExpBF16
	if e := int(b >> 23 & 0xFF); e > 0 {
		significand, exponent = significand|0x800000, e-127
	}
	if b>>31 == 1 {
		significand = -significand
	}
	return significand, exponent
}

// shift is v * 2^by, truncated toward zero.
func shift(v int64, by int) int64 {
	switch {
	case by >= 0:
		return v << by
	case v < 0:
		return -(-v >> -by)
	}
	return v >> -by
}

// roundToZero is v * 2^exponent, rounded toward zero to FP32: subnormals in steps of 2^-149, |.| >= 2^128 gives an
// infinity, zero is +0.
func roundToZero(v int64, exponent int) float32 {
	magnitude := v
	if v < 0 {
		magnitude = -v
	}
	drop := max(bits.Len64(uint64(magnitude))-24, minStep-exponent, 0)
	magnitude, exponent = magnitude>>drop, exponent+drop
	if magnitude == 0 {
		return 0
	}
	f := math.Ldexp(float64(magnitude), exponent) // exact: 24 bits
	if f >= 0x1p128 {
		f = math.Inf(1)
	}
	if v < 0 {
		f = -f
	}
	return float32(f)
}
