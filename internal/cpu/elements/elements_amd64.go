// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package elements

import (
	"golang.org/x/sys/cpu"

	"github.com/samebit/samebit/contract"
)

//go:generate go -C ../_asm run ./elements -out ../elements/kernels_amd64.s -stubs ../elements/kernels_amd64.go -pkg elements

// found asks x/sys/cpu, which knows whether the system saves the registers.
var found = func() (sets []*Set) {
	if cpu.X86.HasAVX2 && cpu.X86.HasAVX512F {
		sets = append(sets, avx512)
	}
	if cpu.X86.HasAVX2 {
		sets = append(sets, avx2)
	}
	return sets
}()

// The assembly takes what is a multiple of elementStep, and Go the few elements behind it.
const elementStep = 16

var avx512 = &Set{
	"avx512", swigluBy(swiglu512), swigluBackwardBy(swigluBackward512), addScaledBy(addScaled512, addScaledGo),
	addScaledBy(foldRouter512, foldRouterGo), roundBy(round512), expShiftBy(expShift512),
	treeVector, selectTopVector, allZeroVector, nonFiniteVector,
}

var avx2 = &Set{
	"avx2", swigluBy(swiglu256), swigluBackwardBy(swigluBackward256), addScaledBy(addScaled256, addScaledGo),
	addScaledBy(foldRouter256, foldRouterGo), roundBy(round256), expShiftBy(expShift256),
	treeVector, selectTopVector, allZeroVector, nonFiniteVector,
}

func swigluBy(f func(h *uint16, g, u *float32, n int)) func(h []contract.BF16, g, u []float32) {
	return func(h []contract.BF16, g, u []float32) {
		g, u = g[:len(h)], u[:len(h)]
		n := len(h) / elementStep * elementStep
		if n > 0 {
			f(bits16(h), &g[0], &u[0], n)
		}
		swigluGo(h[n:], g[n:], u[n:])
	}
}

func swigluBackwardBy(
	f func(dg, du, hw *uint16, terms, g, u, q *float32, w float32, n int),
) func(dg, du, hw []contract.BF16, terms, g, u, q []float32, w float32) {
	return func(dg, du, hw []contract.BF16, terms, g, u, q []float32, w float32) {
		n := len(dg)
		du, hw, terms, g, u, q = du[:n], hw[:n], terms[:n], g[:n], u[:n], q[:n]
		n = n / elementStep * elementStep
		if n > 0 {
			f(bits16(dg), bits16(du), bits16(hw), &terms[0], &g[0], &u[0], &q[0], w, n)
		}
		swigluBackwardGo(dg[n:], du[n:], hw[n:], terms[n:], g[n:], u[n:], q[n:], w)
	}
}

func addScaledBy(
	f func(sum *float32, by float32, v *uint16, n int), rest func(sum []float32, by float32, v []contract.BF16),
) func(sum []float32, by float32, v []contract.BF16) {
	return func(sum []float32, by float32, v []contract.BF16) {
		v = v[:len(sum)]
		n := len(sum) / elementStep * elementStep
		if n > 0 {
			f(&sum[0], by, bits16(v), n)
		}
		rest(sum[n:], by, v[n:])
	}
}

func roundBy(f func(dst *uint16, src *float32, n int)) func(dst []contract.BF16, src []float32) {
	return func(dst []contract.BF16, src []float32) {
		src = src[:len(dst)]
		n := len(dst) / elementStep * elementStep
		if n > 0 {
			f(bits16(dst), &src[0], n)
		}
		roundGo(dst[n:], src[n:])
	}
}

func expShiftBy(f func(u, l *float32, max float32, n int)) func(u, l []float32, max float32) {
	return func(u, l []float32, max float32) {
		l = l[:len(u)]
		n := len(u) / elementStep * elementStep
		if n > 0 {
			f(&u[0], &l[0], max, n)
		}
		expShiftGo(u[n:], l[n:], max)
	}
}

func bits16(v []contract.BF16) *uint16 { return (*uint16)(&v[0]) }
