// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package elements has the CPU backend's kernels that are not products: each gives the contract's bits.
package elements

import (
	"math"
	"slices"

	"github.com/samebit/samebit/contract"
)

// Set is one instruction set's kernels over elements. The first slice gives the length, and no two may overlap.
type Set struct {
	Name string
	// SwiGLU: h = R6's bf16(silu(g)*u).
	SwiGLU func(h []contract.BF16, g, u []float32)
	// SwiGLUBackward is R8: with h as above, terms = q*h and hw = bf16(h*w), and the gradients of g and u.
	SwiGLUBackward func(dg, du, hw []contract.BF16, terms, g, u, q []float32, w float32)
	// AddScaled: sum += by*v, product and sum each rounded. With by = 1 the product is v itself.
	AddScaled func(sum []float32, by float32, v []contract.BF16)
	// FoldRouter is R10's: AddScaled in which a NaN is 0x7FFFFFFF.
	FoldRouter func(acc []float32, dl float32, x []contract.BF16)
	// Round: dst = bf16(src).
	Round func(dst []contract.BF16, src []float32)
	// ExpShift: u = R4's e^(l-max).
	ExpShift func(u, l []float32, max float32)
	// Tree is R4's sum.
	Tree func(v []float32) float32
	// SelectTop is R3.
	SelectTop func(ids []int32, logits []float32)
	// AllZero is whether v is zero throughout, of either sign.
	AllZero func(v []contract.BF16) bool
	// NonFinite is the index of the first infinity or NaN, or -1.
	NonFinite func(v []contract.BF16) int
}

// Sets are those that this machine can run, the best first and Go last.
func Sets() []*Set { return append(slices.Clone(found), Go) }

// Go is the portable one.
var Go = &Set{
	"go", swigluGo, swigluBackwardGo, addScaledGo, foldRouterGo, roundGo, expShiftGo, treeGo, selectTopGo,
	contract.AllZero, nonFiniteGo,
}

func swigluGo(h []contract.BF16, g, u []float32) {
	g, u = g[:len(h)], u[:len(h)]
	for i, g := range g {
		h[i] = contract.Round(g / (1 + exp(-g)) * u[i])
	}
}

func swigluBackwardGo(dg, du, hw []contract.BF16, terms, g, u, q []float32, w float32) {
	n := len(dg)
	du, hw, terms, g, u, q = du[:n], hw[:n], terms[:n], g[:n], u[:n], q[:n]
	for i, g := range g {
		d := 1 + exp(-g)
		silu, s := g/d, 1/d
		h := contract.Round(silu * u[i]).Float32()
		terms[i] = q[i] * h
		hw[i] = contract.Round(h * w)
		dh := q[i] * w
		slope := s * (1 + float32(g*(1-s)))
		dg[i] = contract.Round(float32(dh*u[i]) * slope)
		du[i] = contract.Round(dh * silu)
	}
}

func addScaledGo(sum []float32, by float32, v []contract.BF16) {
	v = v[:len(sum)]
	for j, b := range v {
		sum[j] += float32(by * b.Float32())
	}
}

func foldRouterGo(acc []float32, dl float32, x []contract.BF16) {
	x = x[:len(acc)]
	for j, b := range x {
		s := acc[j] + float32(dl*b.Float32())
		if s != s {
			s = math.Float32frombits(0x7FFFFFFF)
		}
		acc[j] = s
	}
}

func roundGo(dst []contract.BF16, src []float32) {
	src = src[:len(dst)]
	for j, v := range src {
		dst[j] = contract.Round(v)
	}
}

func expShiftGo(u, l []float32, max float32) {
	l = l[:len(u)]
	for i, v := range l {
		u[i] = exp(v - max)
	}
}

func nonFiniteGo(v []contract.BF16) int {
	for i, b := range v {
		if !b.Finite() {
			return i
		}
	}
	return -1
}

// exp is contract.Exp without float64.
func exp(x float32) float32 {
	switch {
	case x != x:
		return math.Float32frombits(0x7FFFFFFF)
	case x > 88.72283:
		return float32(math.Inf(1))
	case x < -103.97208:
		return 0
	}
	const toInt = 1.5 * (1 << 23) // adding it rounds to a whole number, which is then in the low bits
	t := float32(x*1.44269504) + toInt
	k := int32(math.Float32bits(t)) - 0x4B400000
	n := t - toInt
	r := x - float32(n*0.693359375)
	r = r - float32(n*-2.12194440e-4)
	p := float32(1.9875691500e-4*r) + 1.3981999507e-3
	p = float32(p*r) + 8.3334519073e-3
	p = float32(p*r) + 4.1665795894e-2
	p = float32(p*r) + 1.6666665459e-1
	p = float32(p*r) + 5.0000001201e-1
	p = float32(float32(p*float32(r*r))+r) + 1
	return float32(float32(p*twoTo(k>>1)) * twoTo(k-k>>1))
}

// twoTo is 2^n, of a normal FP32.
func twoTo(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }
