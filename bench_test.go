// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/bench"
	"github.com/samebit/samebit/internal/testgen"
)

var benchShapes = flag.String("shapes", "tiny,mid", "shapes that BenchmarkLayer runs; qwen3-next takes 3.2 GB, with a backward 16 GB")

// BenchmarkLayer is the calls that a user makes, under the names of `samebit bench`, which measures more beside them:
//
//	go test -run '^$' -bench 'Layer/shape=mid' .
//	go test -run '^$' -bench 'Layer/shape=qwen3-next/backend=cpu/pass=forward$/tokens=64$' -shapes qwen3-next .
func BenchmarkLayer(b *testing.B) {
	for name := range strings.SplitSeq(*benchShapes, ",") {
		shape, err := testgen.Shape(name)
		if err != nil {
			b.Fatal(err)
		}
		subject, err := bench.New(name, shape, bench.Weights(shape, bench.Seed, nil), samebit.Options{Backend: "cpu"})
		if err != nil {
			b.Fatal(err)
		}
		for _, pass := range bench.Passes {
			for _, tokens := range []int{1, 8, 64, 256, 1024} {
				b.Run(subject.Case(pass, tokens).Part(), func(b *testing.B) { benchmarkCase(b, subject, pass, tokens) })
			}
		}
		if err := subject.Close(); err != nil {
			b.Error(err)
		}
	}
}

func benchmarkCase(b *testing.B, s *bench.Subject, p bench.Pass, tokens int) {
	run, err := s.Runner(p, tokens)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := run(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(tokens)*float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
}
