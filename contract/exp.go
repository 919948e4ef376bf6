// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract

import "math"

// Exp is e^x in FP32, by R4: every step rounded to nearest even, nothing fused; below 1 ulp from the true value.
// x > 88.72283 gives +Inf, x < -103.97208 gives +0, NaN gives NaN.
func Exp(x float32) float32 {
	switch {
	case x != x:
		return nan(x)
	case x > 88.72283:
		return float32(math.Inf(1))
	case x < -103.97208:
		return 0
	}
	n := float32(math.RoundToEven(float64(float32(x * 1.44269504))))
	// r = x - n*ln(2), ln(2) in two parts of which the first is short enough for an exact product.
	r := x - float32(n*0.693359375)
	r = r - float32(n*-2.12194440e-4)
	var p float32 = 1.9875691500e-4
	for _, c := range [...]float32{1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1} {
		p = float32(p*r) + c
	}
	p = float32(float32(p*float32(r*r))+r) + 1
	// 2^n in two factors, since n reaches from -150 to 128 and each factor must be a normal number.
	half := math.Floor(float64(n) / 2)
	return float32(float32(p*pow2(int(half))) * pow2(int(float64(n)-half)))
}

// Sigmoid is 1 / (1 + e^-z), each step rounded to nearest even (R7).
func Sigmoid(z float32) float32 { return 1 / (1 + Exp(-z)) }

// pow2 is 2^n for n from -126 to 127.
func pow2(n int) float32 { return math.Float32frombits(uint32(n+127) << 23) }
