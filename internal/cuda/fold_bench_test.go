// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/internal/testgen"
)

// BenchmarkFold times the weights' gradients of one call, Add and Flush in a CUDA graph: the median of 15 replays. Beside it, the
// router's sums and the index alone.
//
//	go test ./internal/cuda -run '^$' -bench Fold -benchtime 1x
func BenchmarkFold(b *testing.B) {
	gpu := openGPU(b)
	s, err := testgen.Shape("qwen3-next")
	if err != nil {
		b.Fatal(err)
	}
	loaded, err := gpu.Load(backend.Spec{Shape: s, Weights: s.NewWeights()}) // not read
	if err != nil {
		b.Fatal(err)
	}
	l := loaded.(*layer)
	for _, d := range []backend.Dtype{backend.BF16, backend.FP32} {
		to := newTarget(b, gpu, s, d)
		if err := gpu.Zero(to.all); err != nil {
			b.Fatal(err)
		}
		made, err := l.NewFold(&to.Gradients)
		if err != nil {
			b.Fatal(err)
		}
		f := made.(*fold)
		for _, tokens := range []int{64, 1024, 4096, 16384, 32768} {
			b.Run(fmt.Sprintf("shape=qwen3-next/backend=cuda/gradients=%v/tokens=%d", d, tokens), func(b *testing.B) {
				a, free := newStream(s, tokens, uint64(tokens), randomIDs(seeded(1), s, tokens, 0)).args(b, gpu, l)
				defer free()
				for range b.N {
					b.ReportMetric(replayed(b, gpu, func() error { return errors.Join(f.Add(a), f.Flush()) }), "ns/op")
					b.ReportMetric(replayed(b, gpu, func() error {
						k := &launches{layer: l}
						f.addRouter(k, a, bf16(a.X))
						return k.err
					}), "router-ns")
					f.held = []heldCall{{foldCall: foldCall{offsets: i32(a.Rows.Offsets), token: i32(a.Rows.Token)}, tokens: tokens}}
					k := &launches{layer: l}
					times := medianOf(b, gpu, func() error {
						f.index(k, false, d == backend.BF16)
						return k.err
					})
					f.held = nil
					b.ReportMetric(times, "index-ns")
				}
			})
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
		gpu.Free(to.all)
	}
}

// replayed is the nanoseconds that the GPU takes for a graph of what do asks for.
func replayed(b *testing.B, gpu *Backend, do func() error) float64 {
	b.Helper()
	if err := do(); err != nil { // allocates what it needs
		b.Fatal(err)
	}
	g, err := gpu.Capture(do)
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	return medianOf(b, gpu, g.Replay)
}

// medianOf times what do asks for.
func medianOf(b *testing.B, gpu *Backend, do func() error) float64 {
	b.Helper()
	var times []float64
	for range 17 {
		ms, err := gpu.Time(do)
		if err != nil {
			b.Fatal(err)
		}
		times = append(times, float64(ms))
	}
	times = times[2:]
	slices.Sort(times)
	return times[len(times)/2]
}
