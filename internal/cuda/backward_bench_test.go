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

// BenchmarkBackward times the backward up to dx as BenchmarkLayer times the forward: the median of replays of a CUDA graph of several
// backwards of different tokens; beside it a forward that keeps a tape, and each stage in a graph of its own.
//
//	go test ./internal/cuda -run '^$' -bench Backward -benchtime 1x
func BenchmarkBackward(b *testing.B) {
	gpu := openGPU(b)
	s, w := full()
	loaded, err := gpu.Load(backend.Spec{Shape: s, Weights: &w})
	if err != nil {
		b.Fatal(err)
	}
	for _, tokens := range []int{1, 64, 256, 1024, 4096, 16384, 32768} {
		b.Run(fmt.Sprintf("shape=qwen3-next/backend=cuda/pass=dx/tokens=%d", tokens), func(b *testing.B) {
			measureBackward(b, gpu, loaded.(*layer), s, tokens)
		})
	}
}

func measureBackward(b *testing.B, gpu *Backend, l *layer, s contract.Shape, tokens int) {
	type both struct {
		f *work
		w *backwardWork
	}
	var all []both
	for i := range max(1, min(8, 1024/tokens)) {
		f := newWork(b, gpu, s, testgen.Tokens(tokens, s.Hidden, uint64(100+i)), nil, true)
		all = append(all, both{f, newBackwardWork(b, gpu, s, f, testgen.Upstream(tokens, s.Hidden, uint64(200+i)))})
	}
	defer func() {
		for _, v := range all {
			v.f.free(gpu)
			v.w.free(gpu)
		}
	}()
	median := func(do func(v both) error) float64 {
		each := func() error {
			var err error
			for _, v := range all {
				err = errors.Join(err, do(v))
			}
			return err
		}
		if err := each(); err != nil { // allocates what it needs
			b.Fatal(err)
		}
		g, err := gpu.Capture(each)
		if err != nil {
			b.Fatal(err)
		}
		defer g.Close()
		var times []float64
		for range 18 {
			spent, err := gpu.Time(g.Replay)
			if err != nil {
				b.Fatal(err)
			}
			times = append(times, float64(spent))
		}
		times = times[3:]
		slices.Sort(times)
		return times[len(times)/2] / float64(len(all))
	}
	for range b.N {
		b.ReportMetric(median(func(v both) error { return v.f.run(l) }), "tape-ns")
		b.ReportMetric(median(func(v both) error { return v.w.run(l) }), "ns/op")
		b.ReportMetric(median(func(v both) error { return l.PlanBackward(v.w.plan) }), "plan-ns")
		b.ReportMetric(median(func(v both) error { return l.RouteBackward(v.w.route) }), "route-ns")
		b.ReportMetric(median(func(v both) error { return l.InputGradient(v.w.input) }), "input-ns")
		for i := range BackwardTilings {
			l.backwardTiling = &BackwardTilings[i]
			median(func(v both) error { return l.PlanBackward(v.w.plan) })
			b.ReportMetric(median(func(v both) error { return l.ExpertsBackward(v.w.experts) }), fmt.Sprintf("experts%d-ns", i))
			b.ReportMetric(median(func(v both) error { return l.RowsBackward(v.w.rows) }), fmt.Sprintf("rows%d-ns", i))
		}
		l.backwardTiling = nil
	}
}
