// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/samebit/samebit/contract"
)

// unit is the exponent of the fixed-point unit of law: below it no product of two BF16 numbers has a bit.
const unit = -300

// law is R1 for finite numbers once more, written from its text in unbounded fixed-point integers: values, not fields of
// bit patterns; division by powers of two, not shifts.
func law(acc float32, a, b []contract.BF16) float32 {
	type term struct {
		value    *big.Int // in units of 2^unit
		exponent int
	}
	var terms []term
	add := func(factors ...float64) {
		t := term{value: big.NewInt(1)}
		for _, f := range factors {
			t.exponent += exponentOf(f)
			t.value.Mul(t.value, fixed(f, unit/len(factors)))
		}
		if t.value.Sign() != 0 {
			terms = append(terms, t)
		}
	}
	add(float64(acc))
	for i := range a {
		add(float64(a[i].Float32()), float64(b[i].Float32()))
	}
	largest := -133
	for _, t := range terms {
		largest = max(largest, t.exponent)
	}
	sum, step := new(big.Int), powerOfTwo(largest-25-unit)
	for _, t := range terms {
		sum.Add(sum, new(big.Int).Quo(t.value, step)) // Quo truncates toward zero
	}
	sum.Mul(sum, step)
	// Toward zero to 24 bits, or to a multiple of 2^-149.
	last := max(sum.BitLen()-24, -149-unit)
	sum.Quo(sum, powerOfTwo(last))
	value, _ := new(big.Float).SetMantExp(new(big.Float).SetInt(sum), last+unit).Float64() // exact: 24 bits
	if math.Abs(value) >= 0x1p128 {
		return float32(math.Inf(sum.Sign()))
	}
	return float32(value)
}

// exponentOf is floor(log2|v|), and no less than -126.
func exponentOf(v float64) int {
	if v == 0 {
		return -126
	}
	_, e := math.Frexp(v) // |v| = [0.5,1) * 2^e
	return max(e-1, -126)
}

// fixed is v in units of 2^exponent, which must hold all its bits.
func fixed(v float64, exponent int) *big.Int {
	i, accuracy := new(big.Float).SetMantExp(big.NewFloat(v), -exponent).Int(nil)
	if accuracy != big.Exact {
		panic("the fixed-point unit is too coarse")
	}
	return i
}

func powerOfTwo(n int) *big.Int { return new(big.Int).Lsh(big.NewInt(1), uint(n)) }

// tc16Kinds draw the inputs of one step: each kind stresses another part of the law.
var tc16Kinds = []struct {
	name string
	draw func(r *rand.Rand) (acc float32, a, b []contract.BF16)
}{
	{"any exponents", func(r *rand.Rand) (float32, []contract.BF16, []contract.BF16) {
		return finiteFP32(r), finiteBF16s(r, 0, 254), finiteBF16s(r, 0, 254)
	}},
	{"near exponents", func(r *rand.Rand) (float32, []contract.BF16, []contract.BF16) {
		acc := f32(r.Uint32()&0x807FFFFF | (112+r.Uint32N(32))<<23)
		return acc, finiteBF16s(r, 119, 135), finiteBF16s(r, 119, 135)
	}},
	{"cancelling", func(r *rand.Rand) (float32, []contract.BF16, []contract.BF16) {
		a, b := finiteBF16s(r, 110, 140), finiteBF16s(r, 110, 140)
		for i := 0; i+1 < len(a); i += 2 {
			a[i+1], b[i+1] = a[i]^0x8000, b[i]
		}
		a[r.IntN(16)] ^= contract.BF16(r.IntN(4)) // and something is left
		return f32(r.Uint32()&0x807FFFFF | (90+r.Uint32N(40))<<23), a, b
	}},
	{"subnormal factors", func(r *rand.Rand) (float32, []contract.BF16, []contract.BF16) {
		return finiteFP32(r), finiteBF16s(r, 0, 2), finiteBF16s(r, 0, 254)
	}},
	{"subnormal results", func(r *rand.Rand) (float32, []contract.BF16, []contract.BF16) {
		return f32(r.Uint32() & 0x81FFFFFF), finiteBF16s(r, 48, 64), finiteBF16s(r, 48, 64)
	}},
	{"overflow", func(r *rand.Rand) (float32, []contract.BF16, []contract.BF16) {
		return f32(r.Uint32()&0x80FFFFFF | 0x7E000000), finiteBF16s(r, 186, 191), finiteBF16s(r, 186, 191)
	}},
}

// finiteBF16s are 16 numbers with biased exponents from low to high; one in sixteen is a zero.
func finiteBF16s(r *rand.Rand, low, high int) []contract.BF16 {
	v := make([]contract.BF16, 16)
	for i := range v {
		bits := r.IntN(0x100)
		v[i] = contract.BF16(bits&0x80<<8 | (low+r.IntN(high-low+1))<<7 | bits&0x7F)
		if r.IntN(16) == 0 {
			v[i] &= 0x8000
		}
	}
	return v
}

func finiteFP32(r *rand.Rand) float32 { return f32(r.Uint32()&0x807FFFFF | r.Uint32N(255)<<23) }

// TestTC16Law compares TC16 with the law in unbounded integers, over the whole exponent range.
func TestTC16Law(t *testing.T) {
	const cases = 20000
	r := rand.New(rand.NewPCG(1, 16))
	for _, kind := range tc16Kinds {
		var got, want []float32
		for range cases {
			acc, a, b := kind.draw(r)
			got, want = append(got, contract.TC16(acc, a, b)), append(want, law(acc, a, b))
		}
		sameBits(t, kind.name, 1, got, want)
	}
	t.Logf("%d kinds of %d cases", len(tc16Kinds), cases)
}
