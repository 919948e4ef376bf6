// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
)

// BenchmarkLayer times the whole block in a CUDA graph: the median of 25 replays. Several forwards of different tokens stand in
// one graph, so that an expert's weights do not wait in the cache from one replay to the next. Beside it the stages, each in
// a graph of its own, and one forward after the cache was flushed.
//
//	go test ./internal/cuda -run '^$' -bench Layer -benchtime 1x
func BenchmarkLayer(b *testing.B) {
	gpu := openGPU(b)
	s, w := full()
	loaded, err := gpu.Load(backend.Spec{Shape: s, Weights: &w})
	if err != nil {
		b.Fatal(err)
	}
	l := loaded.(*layer)
	flush, err := gpu.Alloc(backend.I32, 64<<20)
	if err != nil {
		b.Fatal(err)
	}
	for _, tokens := range []int{1, 8, 64, 256, 1024, 4096, 16384, 32768} {
		b.Run(fmt.Sprintf("shape=qwen3-next/backend=cuda/pass=forward/tokens=%d", tokens), func(b *testing.B) {
			measure(b, gpu, l, s, tokens, flush)
		})
	}
}

func measure(b *testing.B, gpu *Backend, l *layer, s contract.Shape, tokens int, flush backend.Buffer) {
	forwards := max(1, min(16, 1024/tokens))
	var works []*work
	for i := range forwards {
		works = append(works, newWork(b, gpu, s, testgen.Tokens(tokens, s.Hidden, uint64(100+i)), nil, false))
	}
	defer func() {
		for _, w := range works {
			w.free(gpu)
		}
	}()
	each := func(do func(w *work) error) func() error {
		return func() error {
			var err error
			for _, w := range works {
				err = errors.Join(err, do(w))
			}
			return err
		}
	}
	median := func(do func() error, before func() error) float64 {
		if err := do(); err != nil { // allocates what it needs
			b.Fatal(err)
		}
		g, err := gpu.Capture(do)
		if err != nil {
			b.Fatal(err)
		}
		defer g.Close()
		var times []float64
		for range 28 {
			if before != nil {
				if err := before(); err != nil {
					b.Fatal(err)
				}
			}
			spent, err := gpu.Time(g.Replay)
			if err != nil {
				b.Fatal(err)
			}
			times = append(times, float64(spent))
		}
		times = times[3:]
		slices.Sort(times)
		return times[len(times)/2]
	}
	n := float64(forwards)
	for range b.N {
		whole := median(each(func(w *work) error { return w.run(l) }), nil) / n
		b.ReportMetric(whole, "ns/op")
		b.ReportMetric(median(func() error { return works[0].run(l) }, func() error { return gpu.Zero(flush) }), "one-ns")
		b.ReportMetric(median(each(func(w *work) error { return l.Route(w.route) }), nil)/n, "route-ns")
		b.ReportMetric(median(each(func(w *work) error { return l.Plan(w.plan) }), nil)/n, "plan-ns")
		b.ReportMetric(median(each(func(w *work) error { return l.Combine(w.combine) }), nil)/n, "combine-ns")
		for i := range Tilings {
			l.tiling = &Tilings[i]
			if err := each(func(w *work) error { return l.Plan(w.plan) })(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(median(each(func(w *work) error { return l.GateUp(w.gateUp) }), nil)/n, fmt.Sprintf("gateup%d-ns", i))
			b.ReportMetric(median(each(func(w *work) error { return l.Down(w.down) }), nil)/n, fmt.Sprintf("down%d-ns", i))
		}
		l.tiling = nil
	}
}
