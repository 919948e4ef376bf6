// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"math"

	"github.com/samebit/samebit/contract"
)

const group = 16

// vectors are BF16 vectors of one length, taken apart for the tensor core's law (R1): values as float64, in which every
// product is exact, and exponents. They are padded with zeros to whole groups.
type vectors struct {
	length    int // padded
	values    []float64
	exponents []int32
	bits      []contract.BF16
	special   []bool // the vector has a NaN or an infinity
}

// zeroExponent is so low that no sum with another exponent comes near the law's least scale.
const zeroExponent = -1 << 20

func newVectors(n, k int) *vectors {
	length := (k + group - 1) / group * group
	v := &vectors{
		length: length, values: make([]float64, n*length), exponents: make([]int32, n*length),
		bits: make([]contract.BF16, n*length), special: make([]bool, n),
	}
	for i := range v.exponents {
		v.exponents[i] = zeroExponent
	}
	return v
}

func packRows(x [][]contract.BF16, from, to int) *vectors {
	v := newVectors(len(x), to-from)
	for i := range x {
		v.fill(i, x[i][from:to])
	}
	return v
}

// packColumns takes columns from one to another of a matrix given by its rows.
func packColumns(rows [][]contract.BF16, from, to int) *vectors {
	v := newVectors(to-from, len(rows))
	for k, r := range rows {
		for i, x := range r[from:to] {
			v.set(i, k, x)
		}
	}
	return v
}

func (v *vectors) fill(i int, x []contract.BF16) {
	v.special[i] = false
	for k, b := range x {
		v.set(i, k, b)
	}
}

func (v *vectors) set(i, k int, b contract.BF16) {
	at := i*v.length + k
	v.values[at], v.bits[at] = float64(b.Float32()), b
	switch e := int32(b >> 7 & 0xFF); {
	case b&0x7FFF == 0:
		v.exponents[at] = zeroExponent
	case e == 0:
		v.exponents[at] = -126
	case e == 0xFF:
		v.special[i] = true
	default:
		v.exponents[at] = e - 127
	}
}

// dot is tcdot of vector i of a and vector j of b.
func dot(a *vectors, i int, b *vectors, j int) float32 {
	n := a.length
	from, to := i*n, j*n
	if a.special[i] || b.special[j] {
		return contract.TCDot(a.bits[from:from+n], b.bits[to:to+n])
	}
	av, bv := a.values[from:from+n], b.values[to:to+n]
	ae, be := a.exponents[from:from+n], b.exponents[to:to+n]
	var acc float32
	for k := 0; k < n; k += group {
		ae, be := (*[group]int32)(ae[k:]), (*[group]int32)(be[k:])
		scale := int32(-133)
		for t := range group {
			scale = max(scale, ae[t]+be[t])
		}
		bits := math.Float32bits(acc)
		switch e := int32(bits >> 23 & 0xFF); {
		case bits&0x7FFFFFFF == 0:
		case e == 0:
			scale = max(scale, -126)
		case e == 0xFF: // overflowed; infinities are the contract's own affair
			return chain(acc, a.bits[from+k:from+n], b.bits[to+k:to+n])
		default:
			scale = max(scale, e-127)
		}
		unit := pow2(25 - scale)
		sum := int64(float64(acc) * unit)
		av, bv := (*[group]float64)(av[k:]), (*[group]float64)(bv[k:])
		for t := range group {
			sum += int64(av[t] * bv[t] * unit)
		}
		acc = roundToZero(sum, scale-25)
	}
	return acc
}

// chain goes on from acc by the contract.
func chain(acc float32, a, b []contract.BF16) float32 {
	for k := 0; k < len(a); k += group {
		acc = contract.TC16(acc, a[k:k+group], b[k:k+group])
	}
	return acc
}

// pow2 is 2^n, of a normal float64.
func pow2(n int32) float64 { return math.Float64frombits(uint64(n+1023) << 52) }

// roundToZero is sum * 2^exponent, rounded toward zero to FP32. The float64 is exact, below 2^32 in steps.
func roundToZero(sum int64, exponent int32) float32 {
	f := float64(sum) * pow2(exponent)
	bits := math.Float64bits(f)
	switch e := int32(bits>>52&0x7FF) - 1023; {
	case sum == 0:
		return 0
	case e > 127:
		return float32(math.Copysign(math.Inf(1), f))
	case e >= -126:
		return float32(math.Float64frombits(bits &^ (1<<29 - 1)))
	}
	steps := math.Trunc(f * 0x1p149) // subnormal: whole steps of 2^-149
	if steps == 0 {
		return 0
	}
	return float32(steps * 0x1p-149)
}
