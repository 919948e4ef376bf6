// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"testing"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/internal/testgen"
)

// BenchmarkTraining times forward and backward with the gradients of all weights, in BF16 and in FP32, as BenchmarkLayer times the forward:
// the median of replays of a CUDA graph of several calls of different tokens. Beside the first, its parts, each in a graph of its own:
// the forward, which keeps a tape, the backward up to dx and its stages, and the fold.
//
//	go test ./internal/cuda -run '^$' -bench Training -benchtime 1x
func BenchmarkTraining(b *testing.B) {
	gpu := openGPU(b)
	s, w := full()
	loaded, err := gpu.Load(backend.Spec{Shape: s, Weights: &w})
	if err != nil {
		b.Fatal(err)
	}
	l := loaded.(*layer)
	for _, tokens := range []int{1, 8, 64, 256, 1024, 4096, 16384, 32768} {
		for _, d := range []backend.Dtype{backend.BF16, backend.FP32} {
			pass := map[backend.Dtype]string{backend.BF16: "forward+backward", backend.FP32: "forward+backward-fp32"}[d]
			b.Run(fmt.Sprintf("shape=qwen3-next/backend=cuda/pass=%s/tokens=%d", pass, tokens), func(b *testing.B) {
				to := newTarget(b, gpu, s, d)
				defer gpu.Free(to.all)
				if err := gpu.Zero(to.all); err != nil {
					b.Fatal(err)
				}
				f, err := l.NewFold(&to.Gradients)
				if err != nil {
					b.Fatal(err)
				}
				defer f.Close()
				measureTraining(b, gpu, l, f, tokens, d == backend.BF16)
			})
		}
	}
}

func measureTraining(b *testing.B, gpu *Backend, l *layer, f backend.Fold, tokens int, parts bool) {
	type step struct {
		f *work
		w *backwardWork
	}
	var all []step
	for i := range max(1, min(8, 1024/tokens)) {
		f := newWork(b, gpu, l.Shape, testgen.Tokens(tokens, l.Hidden, uint64(100+i)), nil, true)
		all = append(all, step{f, newBackwardWork(b, gpu, l.Shape, f, testgen.Upstream(tokens, l.Hidden, uint64(200+i)))})
	}
	defer func() {
		for _, v := range all {
			v.f.free(gpu)
			v.w.free(gpu)
		}
	}()
	each := func(do func(v step) error) float64 {
		return replayed(b, gpu, func() error {
			var err error
			for _, v := range all {
				err = errors.Join(err, do(v))
			}
			return err
		}) / float64(len(all))
	}
	fold := func(v step) error {
		return errors.Join(f.Add(backend.FoldArgs{X: v.f.route.X, DY: v.w.plan.DY, Rows: v.w.plan.Rows, RoutedGrad: v.w.experts.RoutedGrad,
			SharedGrad: v.w.experts.SharedGrad, IDs: v.f.route.IDs, DLogits: v.w.route.DLogits, DZ: v.w.route.DZ}), f.Flush())
	}
	for range b.N {
		b.ReportMetric(each(func(v step) error { return errors.Join(v.f.run(l), v.w.run(l), fold(v)) }), "ns/op")
		if !parts {
			continue
		}
		b.ReportMetric(each(func(v step) error { return v.f.run(l) }), "tape-ns")
		b.ReportMetric(each(func(v step) error { return v.w.run(l) }), "dx-ns")
		b.ReportMetric(each(fold), "fold-ns")
		b.ReportMetric(each(func(v step) error { return l.PlanBackward(v.w.plan) }), "plan-ns")
		b.ReportMetric(each(func(v step) error { return l.RouteBackward(v.w.route) }), "route-ns")
		b.ReportMetric(each(func(v step) error { return l.InputGradient(v.w.input) }), "input-ns")
		for i := range BackwardTilings {
			l.backwardTiling = &BackwardTilings[i]
			each(func(v step) error { return l.PlanBackward(v.w.plan) })
			b.ReportMetric(each(func(v step) error { return l.ExpertsBackward(v.w.experts) }), fmt.Sprintf("experts%d-ns", i))
			b.ReportMetric(each(func(v step) error { return l.RowsBackward(v.w.rows) }), fmt.Sprintf("rows%d-ns", i))
		}
		l.backwardTiling = nil
	}
}
