// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package elements

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/samebit/samebit/contract"
)

// best is the time of one call in the fastest batch, which a shared machine disturbs least.
func best(b *testing.B, do func()) time.Duration {
	const batch = 16
	least := time.Duration(math.MaxInt64)
	for b.Loop() {
		start := time.Now()
		for range batch {
			do()
		}
		least = min(least, time.Since(start))
	}
	b.ReportMetric(float64(least.Nanoseconds())/batch, "best-ns")
	b.ReportMetric(0, "ns/op")
	return least / batch
}

// BenchmarkElements is each kernel over rows that stay in the first level's cache.
func BenchmarkElements(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{512, 2048} {
		normal := func() []float32 {
			v := make([]float32, n)
			for i := range v {
				v[i] = float32(r.NormFloat64() * 2)
			}
			return v
		}
		g, u, q, sum := normal(), normal(), normal(), normal()
		x, h, dg, du := make([]contract.BF16, n), make([]contract.BF16, n), make([]contract.BF16, n), make([]contract.BF16, n)
		zero := make([]contract.BF16, n)
		for i := range x {
			x[i] = contract.Round(g[i])
		}
		var ids [10]int32
		many := make([][]float32, 64)
		for i := range many {
			many[i] = normal()
		}
		at := 0
		for _, k := range []struct {
			name string
			do   func(e *Set)
		}{
			{"swiglu", func(e *Set) { e.SwiGLU(h, g, u) }},
			{"swigluBackward", func(e *Set) { e.SwiGLUBackward(dg, du, h, sum, g, u, q, 0.1) }},
			{"addScaled", func(e *Set) { e.AddScaled(sum, 1e-9, x) }},
			{"foldRouter", func(e *Set) { e.FoldRouter(sum, 1e-9, x) }},
			{"round", func(e *Set) { e.Round(h, g) }},
			{"expShift", func(e *Set) { e.ExpShift(sum, g, 5) }},
			{"tree", func(e *Set) { g[0] = e.Tree(u) }},
			{"selectTop", func(e *Set) { at++; e.SelectTop(ids[:], many[at%64]) }},
			{"allZero", func(e *Set) { _ = e.AllZero(zero) }},
			{"nonFinite", func(e *Set) { _ = e.NonFinite(x) }},
		} {
			for _, e := range Sets() {
				b.Run(fmt.Sprintf("%s/%d/%s", k.name, n, e.Name), func(b *testing.B) {
					b.ReportMetric(float64(n)/best(b, func() { k.do(e) }).Seconds()/1e9, "Gelem/s")
				})
			}
			if k.name == "swigluBackward" {
				copy(sum, q)
			}
		}
	}
}

// BenchmarkContract is the contract's functions, which are what the kernels stand in for.
func BenchmarkContract(b *testing.B) {
	e := Set{
		Name: "contract",
		SwiGLU: func(h []contract.BF16, g, u []float32) {
			for i := range h {
				h[i] = contract.SwiGLU(g[i], u[i])
			}
		},
		SwiGLUBackward: func(dg, du, hw []contract.BF16, terms, g, u, q []float32, w float32) {
			for j, q := range q {
				h := contract.SwiGLU(g[j], u[j]).Float32()
				terms[j] = float32(q * h)
				hw[j] = contract.Round(h * w)
				dg[j], du[j] = contract.SwiGLUBackward(g[j], u[j], q, w)
			}
		},
	}
	const n = 512
	r := rand.New(rand.NewPCG(1, 2))
	g, u, h := make([]float32, n), make([]float32, n), make([]contract.BF16, n)
	for i := range g {
		g[i], u[i] = float32(r.NormFloat64()*2), float32(r.NormFloat64())
	}
	b.Run("swiglu", func(b *testing.B) {
		best(b, func() { e.SwiGLU(h, g, u) })
	})
	b.Run("swigluBackward", func(b *testing.B) {
		du, hw, terms := make([]contract.BF16, n), make([]contract.BF16, n), make([]float32, n)
		best(b, func() { e.SwiGLUBackward(h, du, hw, terms, g, u, u, 0.1) })
	})
	b.Run("tree", func(b *testing.B) {
		best(b, func() { contract.Tree(g) })
	})
	b.Run("softmaxExp", func(b *testing.B) {
		best(b, func() {
			for i, v := range g {
				u[i] = contract.Exp(v - 5)
			}
		})
	})
}

// BenchmarkMemory is the scans and the router's fold over more than the caches hold.
func BenchmarkMemory(b *testing.B) {
	v := make([]contract.BF16, 64<<20)
	acc := make([]float32, 32<<20)
	for _, e := range Sets() {
		b.Run("nonFinite/"+e.Name, func(b *testing.B) {
			b.SetBytes(int64(2 * len(v)))
			for b.Loop() {
				e.NonFinite(v)
			}
		})
		b.Run("foldRouter/"+e.Name, func(b *testing.B) {
			b.SetBytes(int64(4 * len(acc)))
			for b.Loop() {
				for at := 0; at < len(acc); at += 2048 {
					e.FoldRouter(acc[at:at+2048], 1, v[:2048])
				}
			}
		})
	}
}
