// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
	"github.com/samebit/samebit/parallel"
)

func tiny(t *testing.T) *Subject {
	t.Helper()
	s, err := testgen.Shape("tiny")
	if err != nil {
		t.Fatal(err)
	}
	subject, err := New("tiny", s, Weights(s, Seed, nil), samebit.Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { subject.Close() })
	return subject
}

func TestWeightsAreTestgens(t *testing.T) {
	s, _ := testgen.Shape("tiny")
	var done, total int64
	got, want := Weights(s, 3, func(d, n int64) { done, total = d, n }), testgen.Weights(s, 3)
	if !reflect.DeepEqual(*got, want) {
		t.Error("not testgen.Weights")
	}
	if done != total || total != 643_328 {
		t.Errorf("progress: %d of %d", done, total)
	}
}

// At the full shape one token needs 71 MB of weights.
func TestWork(t *testing.T) {
	s, _ := testgen.Shape("qwen3-next")
	w := workOf(s, Forward, 1, 10)
	if w.Weights != 71_307_264 || w.MACs != 35_653_632 {
		t.Errorf("forward: %.0f bytes, %.0f multiply-adds", w.Weights, w.MACs)
	}
	both := workOf(s, ForwardBackward, 1, 10)
	if both.Weights != 2*w.Weights || both.MACs != 3*35_653_632-2*(512-10)*2048 {
		t.Errorf("forward+backward: %.0f bytes, %.0f multiply-adds", both.Weights, both.MACs)
	}
}

// A run of forward+backward gives its micro-batch's gradients, cast once, whatever ran before it; forward+backward-fp32 adds.
func TestRunsGiveGradients(t *testing.T) {
	const tokens = 40
	s := tiny(t)
	fp32, err := s.Runner(ForwardBackwardFP32, tokens)
	if err != nil {
		t.Fatal(err)
	}
	first := runOnce(t, fp32)
	sums := *s.members[0].grads.FP32() // copied before the next run adds to them
	sums.Router = slices.Clone(sums.Router)
	down := slices.Clone(s.members[0].grads.FP32().Experts[3].Down)
	if second := runOnce(t, fp32); first.Experts != 16 || second.Experts != 16 || first.Time <= 0 {
		t.Errorf("%+v, %+v", first, second)
	}
	if slices.Equal(down, s.members[0].grads.FP32().Experts[3].Down) || slices.Equal(sums.Router, s.members[0].grads.FP32().Router) {
		t.Error("the second micro-batch added nothing")
	}
	bf16, err := s.Runner(ForwardBackward, tokens)
	if err != nil {
		t.Fatal(err)
	}
	runOnce(t, bf16)
	for i, v := range s.members[0].grads.BF16().Experts[3].Down {
		if v != contract.Round(down[i]) {
			t.Fatalf("element %d: not the first micro-batch's gradient", i)
		}
	}
	before := slices.Clone(s.members[0].grads.BF16().Router)
	if runOnce(t, bf16); slices.Equal(before, s.members[0].grads.BF16().Router) {
		t.Error("two runs took the same tokens")
	}
}

func runOnce(t *testing.T, run func() (Run, error)) Run {
	t.Helper()
	r, err := run()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func clone[T any](m [][]T) [][]T {
	c := make([][]T, len(m))
	for i := range m {
		c[i] = slices.Clone(m[i])
	}
	return c
}

// Runs walk through a pool, and begin again behind its last whole window.
func TestWindows(t *testing.T) {
	s := tiny(t)
	run, err := s.Runner(Forward, 200)
	if err != nil {
		t.Fatal(err)
	}
	if s.tokens != 800 {
		t.Errorf("a pool of %d tokens", s.tokens)
	}
	for range 9 {
		runOnce(t, run)
	}
	if _, err := s.Runner(Forward, 0); err == nil {
		t.Error("no tokens are no error")
	}
}

func TestMeasure(t *testing.T) {
	s := tiny(t)
	for _, p := range Passes {
		var done, total int64
		r, err := s.Measure(p, 3, Budget{Count: 4}, func(d, n int64) { done, total = d, n })
		if err != nil {
			t.Fatal(err)
		}
		if done != 4 || total != 4 || r.Runs != 4 || !(0 < r.Min && r.Min <= r.Median && r.Median <= r.Max) {
			t.Errorf("%s: %d of %d, %+v", p, done, total, r)
		}
		if r.Name() != "Layer/shape=tiny/backend=cpu/pass="+string(p)+"/tokens=3" || r.Weights == 0 || r.MACs == 0 || r.Memory.Allocated == 0 {
			t.Errorf("%s: %s, %+v", p, r.Name(), r)
		}
		if want := map[Pass]int64{ForwardBackward: 643_328, ForwardBackwardFP32: 2 * 643_328}[p]; r.Memory.Gradients != want {
			t.Errorf("%s: gradients of %d bytes, want %d", p, r.Memory.Gradients, want)
		}
	}
	if r, err := s.Measure(Forward, 1, Budget{}, nil); err != nil || r.Runs != leastRuns {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := s.Measure(Forward, 1, Budget{Count: -1}, nil); err == nil {
		t.Error("-1 runs are no error")
	}
}

func TestOpenNamesTheShape(t *testing.T) {
	dir := t.TempDir() + "/made"
	if err := testgen.WriteCheckpoint(dir, "tiny", 1, Seed, nil); err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string]string{dir: "tiny", "../checkpoint/testdata/mixtral-tiny": "mixtral-tiny"} {
		layer := 1
		if folder == dir {
			layer = 0
		}
		s, err := Open(folder, layer, samebit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Case(Forward, 1).Shape; got != want {
			t.Errorf("%s: %s, want %s", folder, got, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := Open(t.TempDir(), 0, samebit.Options{}); err == nil {
		t.Error("an empty folder is no error")
	}
}

// What is written is read again, benchmark lines of other kinds left out.
func TestLines(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	r := &Result{Case: Case{"qwen3-next", "backend=cpu", Forward, 64}, Runs: 20, Median: 0.00095, Min: 0.0009, Max: 12.5, Share: 0.5,
		Work: Work{Experts: 369, Weights: 950_000, MACs: 1_900_000}, Memory: Memory{Peak: 3_300_000_000, Allocated: 12, Workspace: 34}}
	other := *r
	other.By, other.Tokens, other.Median, other.Share = "rival=x", 1, 1, 0
	settings := [][]Setting{{{"goos", "linux"}, {"cpu", "one"}, {"kernels", "x"}}, {{"goos", "linux"}, {"cpu", "two"}}}
	for i, result := range []*Result{r, &other} {
		if err := w.Write(result, settings[i]); err != nil {
			t.Fatal(err)
		}
	}
	const want = "goos: linux\ncpu: one\nkernels: x\n\nBenchmarkLayer/shape=qwen3-next/backend=cpu/pass=forward/tokens=64 20 950000 ns/op " +
		"900000 min-ns/op 12500000000 max-ns/op 67370 tokens/s 1 GB/s 2 GMAC/s 369 experts 12 B/op 3300000000 peak-B 34 workspace-B 0.5 of-read-bandwidth\n" +
		"kernels:\ncpu: two\n\nBenchmarkLayer/shape=qwen3-next/rival=x/"
	if !strings.Contains(b.String(), want) {
		t.Errorf("%s", b.String())
	}
	b.WriteString("BenchmarkTcdot/rows-2 10 5 ns/op\nBenchmarkLayer/shape=x/tokens=1 10 5 ns/op\n")
	got, err := Read(&b, "x")
	if err != nil || len(got) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	if !reflect.DeepEqual(got[0], r) {
		t.Errorf("%+v, want %+v", got[0], r)
	}
	if got[1].Case != other.Case {
		t.Errorf("%+v", got[1].Case)
	}
	if _, err := Read(strings.NewReader("BenchmarkTcdot 10 5 ns/op\n"), "x"); err == nil {
		t.Error("no case is no error")
	}
}

func TestAgainst(t *testing.T) {
	text := `
BenchmarkLayer/shape=a/rival=x/pass=forward/tokens=1 1 3000000000 ns/op
BenchmarkLayer/shape=a/rival=x/pass=forward/tokens=1 1 1000000000 ns/op
BenchmarkLayer/shape=a/rival=x/pass=forward/tokens=1 1 9000000000 ns/op
BenchmarkLayer/shape=a/rival=y/pass=forward/tokens=8 1 2000000000 ns/op
`
	results, err := Read(strings.NewReader(text), "x")
	if err != nil {
		t.Fatal(err)
	}
	a := NewAgainst(results)
	if !slices.Equal(a.By, []string{"rival=x", "rival=y"}) {
		t.Errorf("%v", a.By)
	}
	ours := Case{"a", "backend=cpu", Forward, 1}
	if x, y := a.Seconds("rival=x", ours), a.Seconds("rival=y", ours); x != 3 || y != 0 {
		t.Errorf("%v, %v", x, y)
	}
}

func TestSumReadsAllWords(t *testing.T) {
	v := make([]samebit.BF16, 64)
	before := sum(words(v))
	for i := range v {
		v[i] = 1
		if after := sum(words(v)); after == before {
			t.Errorf("element %d is not read", i)
		}
		v[i] = 0
	}
}

func TestPartsAreAll(t *testing.T) {
	s, _ := testgen.Shape("qwen3-next")
	routers := 0
	for _, p := range parts(s) {
		if p.Role == checkpoint.Router {
			routers++
		}
	}
	if n := len(parts(s)); n != 1+3*512+3+1 || routers != 1 || weightBytes(s) != 3_229_618_176 {
		t.Errorf("%d parts, %d bytes", n, weightBytes(s))
	}
}

// On ranks a run's tokens are shared out, all ranks run as often, and what they send is counted.
func TestOnRanks(t *testing.T) {
	shape, _ := testgen.Shape("tiny")
	grid := parallel.Grid{TP: 2, EP: 2}
	ranks := make([]*parallel.Rank, grid.Ranks())
	groups := parallel.Local(grid.Ranks())
	join := func(i int, _ *parallel.Rank) (err error) {
		ranks[i], err = parallel.Join(groups[i], grid)
		return err
	}
	if err := parallel.Together(make([]*parallel.Rank, len(ranks)), join); err != nil {
		t.Fatal(err)
	}
	s, err := New("tiny", shape, Weights(shape, Seed, nil), samebit.Options{Workers: 1}, ranks...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	whole := tiny(t)
	for _, p := range Passes {
		r, err := s.Measure(p, 41, Budget{Count: 3}, nil)
		if err != nil {
			t.Fatal(err)
		}
		alone, err := whole.Measure(p, 41, Budget{Count: 3}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.By != "backend=cpu/tp=2/ep=2" || r.Runs != 3 || r.Work != alone.Work {
			t.Errorf("%s: %+v, alone %+v", p, r, alone)
		}
		if r.PerRank != r.TokensPerSecond()/4 || r.Between != r.Sent.All || r.Sent.Forward == 0 || (r.Sent.Backward > 0) != (p != Forward) {
			t.Errorf("%s: %+v, %v", p, r, r.Sent)
		}
		if alone.Sent != nil || alone.Between != 0 || alone.PerRank != 0 {
			t.Errorf("%s: alone %+v", p, alone)
		}
		var b bytes.Buffer
		if err := NewWriter(&b).Write(r, nil); err != nil {
			t.Fatal(err)
		}
		read, err := Read(&b, "x")
		if err != nil || read[0].Case != r.Case || read[0].PerRank != digits(r.PerRank) || read[0].Between != digits(r.Between) {
			t.Errorf("%s: %+v, %v", p, read, err)
		}
	}
}

// A part of the weights is that part of all.
func TestPartWeights(t *testing.T) {
	shape, _ := testgen.Shape("tiny")
	part := parallel.Grid{TP: 2, EP: 3}.Part(3, shape)
	w := Weights(shape, Seed, nil)
	if have := PartWeights(part, Seed, nil); !reflect.DeepEqual(have, parallel.CutWeights(w, part)) || have.CheckPart(part) != nil {
		t.Errorf("not the part %+v of the weights", part)
	}
}
