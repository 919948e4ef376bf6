// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package tcdot

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/samebit/samebit/contract"
)

// normal is n values of a bell.
func normal(n int, deviation float64) []contract.BF16 {
	r := rand.New(rand.NewPCG(3, 4))
	v := make([]contract.BF16, n)
	for i := range v {
		v[i] = contract.Round(float32(r.NormFloat64() * deviation))
	}
	return v
}

// BenchmarkProduct is one core's multiply-adds a second, by instruction set, on matrices that a large cache holds: those of
// the layer's stages, an expert's with 64 tokens. best-GMAC/s is of the fastest call, which a shared machine disturbs least.
func BenchmarkProduct(b *testing.B) {
	const hidden, width, tokens, experts = 2048, 512, 64, 512
	gateUp, down := normal(2*width*hidden, 0.02), normal(hidden*width, 0.02)
	router := normal(experts*hidden, 0.02)
	x, h, d := normal(tokens*hidden, 1), normal(tokens*width, 1), normal(tokens*2*width, 1)
	out := make([]float32, tokens*hidden)
	accumulator := make([]float32, width*hidden)
	for _, isa := range rungs() {
		o := NewWorker(isa)
		pack := func(w []contract.BF16, k int) *Packed {
			return o.Pack(w, k, make([]uint32, isa.Words(len(w)/k, k)))
		}
		dot := func(n int, v []contract.BF16, k int, r Right, outputs, segment int) func() {
			var left Left
			rows := rowsOf(v, k)[:n]
			return func() {
				left.Set(rows)
				o.Dot(out, outputs, &left, r, 0, outputs, segment)
			}
		}
		fold := func(n int) func() {
			return func() { o.Fold(accumulator, hidden, rowsOf(d, 2*width)[:n], 0, width, x[:n*hidden]) }
		}
		type product struct {
			name string
			macs int
			do   func()
		}
		rows, columns := Rows(gateUp, hidden, Top(gateUp)), Columns(hidden, Top(gateUp), gateUp)
		products := []product{
			{"rows/m=1024/k=2048/n=64", 2 * width * hidden * tokens, dot(tokens, x, hidden, rows, 2*width, 0)},
			{"rows/m=1024/k=2048/n=1", 2 * width * hidden, dot(1, x, hidden, rows, 2*width, 0)},
			{"rows/m=2048/k=512/n=64", width * hidden * tokens, dot(tokens, h, width, Rows(down, width, Top(down)), hidden, 0)},
			{"router/m=512/k=2048/n=64", experts * hidden * tokens, dot(tokens, x, hidden, Rows(router, hidden, Top(router)), experts, 128)},
			{"columns/m=2048/k=1024/n=64", 2 * width * hidden * tokens, dot(tokens, d, 2*width, columns, hidden, 0)},
			{"columns/m=512/k=2048/n=64", width * hidden * tokens, dot(tokens, x, hidden, Columns(width, Top(down), down), width, 0)},
			{"fold/m=512x2048/k=32", width * hidden * 32, fold(32)},
			{"fold/m=512x2048/k=2", width * hidden * 2, fold(2)},
		}
		if isa.Words(1, 1) > 0 {
			packed, packedDown := pack(gateUp, hidden), pack(down, width)
			for _, n := range []int{1, 2, 3, 8, tokens} {
				products = append(products, product{fmt.Sprintf("packed-rows/m=1024/k=2048/n=%d", n), 2 * width * hidden * n,
					dot(n, x, hidden, packed.Rows(), 2*width, 0)})
			}
			products = append(products,
				product{"packed-columns/m=2048/k=1024/n=64", 2 * width * hidden * tokens, dot(tokens, d, 2*width, PackedColumns(packed), hidden, 0)},
				product{"packed-columns/m=512/k=2048/n=64", width * hidden * tokens, dot(tokens, x, hidden, PackedColumns(packedDown), width, 0)})
		}
		for _, p := range products {
			b.Run(p.name+"/isa="+isa.Name(), func(b *testing.B) {
				least := time.Duration(math.MaxInt64)
				for b.Loop() {
					start := time.Now()
					p.do()
					least = min(least, time.Since(start))
				}
				b.ReportMetric(float64(p.macs)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
				b.ReportMetric(float64(p.macs)/least.Seconds()/1e9, "best-GMAC/s")
			})
		}
	}
}
