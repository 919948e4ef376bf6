// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/samebit/samebit/contract"
)

// nearestBF16 is the cast by its definition (R0): of the two BF16 numbers around f the nearer one, measured exactly in
// float64, and of two that are equally near the even one. The number after the largest counts as 2^128 and is an infinity.
func nearestBF16(f float32) contract.BF16 {
	if f != f {
		return 0x7FC0
	}
	value := func(b contract.BF16) float64 {
		if b&0x7FFF == 0x7F80 {
			return math.Copysign(0x1p128, float64(b.Float32()))
		}
		return float64(b.Float32())
	}
	inner := contract.BF16(math.Float32bits(f) >> 16) // toward zero
	if math.IsInf(float64(f), 0) {
		return inner
	}
	outer := inner + 1
	near, far := math.Abs(float64(f)-value(inner)), math.Abs(value(outer)-float64(f))
	if near < far || near == far && inner&1 == 0 {
		return inner
	}
	return outer
}

// TestRound compares the cast with its definition: on every tie, its neighbours and a stride in the normal run, on all
// 2^32 inputs with -exhaustive.
func TestRound(t *testing.T) {
	var wrong, first atomic.Uint64
	check := func(bits uint32) {
		if contract.Round(f32(bits)) != nearestBF16(f32(bits)) {
			wrong.Add(1)
			first.CompareAndSwap(0, 1<<32|uint64(bits))
		}
	}
	start, step := time.Now(), stride()
	inParallel(256, func(i int) {
		for b := uint64(i) << 24; b < uint64(i+1)<<24; b += step {
			check(uint32(b))
		}
		for upper := uint32(i) << 8; upper < uint32(i+1)<<8; upper++ {
			for _, lower := range []uint32{0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF} {
				check(upper<<16 | lower)
			}
		}
	})
	if n := wrong.Load(); n > 0 {
		f := f32(uint32(first.Load()))
		t.Errorf("%d inputs are rounded wrongly, among them %s: got %s, want %s", n, show(f), show(contract.Round(f)), show(nearestBF16(f)))
	}
	t.Logf("every %d. of 2^32 inputs, and all ties: %v", step, time.Since(start).Round(time.Millisecond))
}

// stride is how far apart the inputs of a walk over all FP32 numbers are: prime, so that every lower half is met.
func stride() uint64 {
	if *exhaustive {
		return 1
	}
	return 4093
}

// TestBF16 takes all 2^16 numbers there and back.
func TestBF16(t *testing.T) {
	for i := range 1 << 16 {
		b := contract.BF16(i)
		f := b.Float32()
		finite := !math.IsInf(float64(f), 0) && f == f
		if back := contract.Round(f); back != b && !(f != f && back == 0x7FC0) {
			t.Fatalf("%s comes back as %s", show(b), show(back))
		}
		if b.Finite() != finite || b.Zero() != (f == 0) {
			t.Fatalf("%s: Finite %t, Zero %t", show(b), b.Finite(), b.Zero())
		}
	}
}
