// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
)

// Shapes of every kind: some larger than a piece of a gradient, some with no multiple of eight in them.
var foldShapes = []contract.Shape{
	tinyShape,
	{Hidden: 640, Experts: 6, TopK: 2, Width: 328, SharedWidth: 264, NormTopK: true},
	{Hidden: 128, Experts: 16, TopK: 4, Width: 64, SharedWidth: 48, NormTopK: false},
	{Hidden: 160, Experts: 8, TopK: 8, Width: 48, SharedWidth: 80, NormTopK: true},
	{Hidden: 33, Experts: 24, TopK: 10, Width: 17, SharedWidth: 7, NormTopK: false},
	{Hidden: 16, Experts: 512, TopK: 10, Width: 16, SharedWidth: 16, NormTopK: true},
	{Hidden: 8, Experts: 600, TopK: 40, Width: 8, NormTopK: true},
	{Hidden: 1, Experts: 1, TopK: 1, Width: 1, SharedWidth: 1, NormTopK: true},
	{Hidden: 300, Experts: 5, TopK: 3, Width: 130, SharedWidth: 33, NormTopK: false},
}

func TestFoldShapes(t *testing.T) {
	b := openGPU(t)
	for i, s := range foldShapes {
		p := newPair(t, b, s, loud(s, uint64(i)), false)
		eachDtype(t, p, func(f *folding) {
			for _, n := range []int{0, 1, 9, 70, 300} {
				f.add(newStream(s, n, uint64(n), nil), n)
				if !f.check(fmt.Sprintf("%+v, %d tokens, %v", s, n, f.dtype)) {
					return
				}
			}
		})
	}
}

// One stream, cut anyhow, held until its end or folded on the way: more calls than one launch indexes, and rows that wait among them.
func TestFoldSplits(t *testing.T) {
	b := openGPU(t)
	for _, s := range []contract.Shape{tinyShape, foldShapes[1], foldShapes[4]} {
		p := newPair(t, b, s, loud(s, 3), false)
		const n = 400
		v := newStream(s, n, 11, nil)
		for _, holds := range []int{0, 1, 300_000} {
			p.have.holds = holds
			eachDtype(t, p, func(f *folding) {
				for _, sizes := range [][]int{{n}, {200, 200}, {31, 1, 32, 33, 303}, slices.Repeat([]int{5}, n/5), {1, 0, 399}, {17}, slices.Repeat([]int{1}, 70)} {
					f.add(v, sizes...)
					if !f.check(fmt.Sprintf("%d in parts of %v, holding %d, %v", n, sizes, holds, f.dtype)) {
						return
					}
					if f.dtype == backend.BF16 {
						f.poison(1)
					}
				}
			})
		}
		p.have.holds = 0
	}
}

// Numbers over the whole range, infinities and NaN among them.
func TestFoldNumbers(t *testing.T) {
	b := openGPU(t)
	s := contract.Shape{Hidden: 136, Experts: 8, TopK: 3, Width: 72, SharedWidth: 40, NormTopK: true}
	p := newPair(t, b, s, loud(s, 42), false)
	r := seeded(41)
	for name, within := range map[string][2]int{
		"every exponent": {1, 253}, "tiny": {0, 66}, "huge": {180, 74}, "wide": {90, 74}, "cancelling": {126, 2}, "not finite": {120, 16},
	} {
		v := newStream(s, 500, 43, nil)
		matrices := [][]contract.BF16{v.x, v.dy}
		matrices = append(append(matrices, v.routed[:]...), v.shared[:]...)
		for _, m := range matrices {
			for i := range m {
				m[i] = m[i]&0x807F | contract.BF16(within[0]+r.IntN(within[1]))<<7
				switch {
				case r.IntN(50) == 0:
					m[i] &= 0x8000
				case name == "not finite" && r.IntN(4000) == 0:
					m[i] = []contract.BF16{0x7F80, 0xFF80, 0x7FC1, 0xFFFF}[r.IntN(4)]
				}
			}
		}
		eachDtype(t, p, func(f *folding) {
			f.add(v, 77, 423)
			f.check(fmt.Sprintf("%s, %v", name, f.dtype))
		})
	}
}

// Groups of very uneven sizes; all tokens to the last experts of many.
func TestFoldLoad(t *testing.T) {
	b := openGPU(t)
	counts := []int{162, 0, 2577, 446, 0, 83}
	uneven := contract.Shape{Hidden: 264, Experts: len(counts), TopK: 1, Width: 40}
	var ids []int32
	for e, n := range counts {
		ids = append(ids, slices.Repeat([]int32{int32(e)}, n)...)
	}
	seeded(25).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	p := newPair(t, b, uneven, loud(uneven, 27), false)
	eachDtype(t, p, func(f *folding) {
		f.add(newStream(uneven, len(ids), 1, ids), len(ids))
		f.check("uneven groups")
	})
	s := contract.Shape{Hidden: 64, Experts: 512, TopK: 3, Width: 16, SharedWidth: 16, NormTopK: true}
	q := newPair(t, b, s, loud(s, 21), false)
	eachDtype(t, q, func(f *folding) {
		f.add(newStream(s, 2048, 2, slices.Repeat([]int32{511, 509, 510}, 2048)), 1000, 1048)
		f.check("every token to the last three")
	})
}

// A stream in a graph, replayed, goes on from the accumulators; half a stream in a graph is refused.
func TestFoldGraph(t *testing.T) {
	b := openGPU(t)
	p := newPair(t, b, tinyShape, loud(tinyShape, 5), false)
	v := newStream(tinyShape, 300, 6, nil)
	eachDtype(t, p, func(f *folding) {
		a, free := v.args(t, p.gpu, p.have)
		defer free()
		run := func() error {
			if err := f.gpuFold.Add(a); err != nil {
				return err
			}
			return f.gpuFold.Flush()
		}
		if err := run(); err != nil {
			t.Fatal(err)
		}
		g, err := b.Capture(run)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		for range 3 {
			if err := g.Replay(); err != nil {
				t.Fatal(err)
			}
		}
		want, freeWant := v.args(t, p.cpu, p.want)
		defer freeWant()
		for range 4 {
			if err := f.cpuFold.Add(want); err != nil {
				t.Fatal(err)
			}
			if err := f.cpuFold.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		f.compare(fmt.Sprintf("replayed, %v", f.dtype))
		if _, err := b.Capture(func() error { return f.gpuFold.Add(a) }); err != nil {
			t.Fatal(err)
		}
		for name, do := range map[string]func() error{"Add": func() error { return f.gpuFold.Add(a) }, "Flush": f.gpuFold.Flush,
			"another graph": func() error { _, err := b.Capture(f.gpuFold.Flush); return err }} {
			if err := do(); err == nil || !strings.Contains(err.Error(), "in a graph in part") {
				t.Errorf("half a stream in a graph, then %s: got %v", name, err)
			}
		}
	})
}

// One set of buffers for every micro-batch, as a training workspace has: the backend's own are spared before they are written again,
// and the caller's may be written at once.
func TestFoldReuse(t *testing.T) {
	b := openGPU(t)
	for _, s := range []contract.Shape{tinyShape, foldShapes[4]} {
		p := newPair(t, b, s, loud(s, 5), false)
		const n, parts = 40, 6
		v := newStream(s, n*parts, 9, nil)
		eachDtype(t, p, func(f *folding) {
			a, free := v.part(0, n).args(t, b, p.have)
			defer free()
			a.X, a.DY = a.X.Slice(0, a.X.Len()), a.DY.Slice(0, a.DY.Len()) // as the caller's
			own := func(a backend.FoldArgs) []backend.Buffer {
				r, g, h := a.Rows, a.RoutedGrad, a.SharedGrad
				return []backend.Buffer{r.Offsets, r.Token, r.Slot, r.Row, g.DGate, g.DUp, g.HW, h.DGate, h.DUp, h.HW}
			}
			for i := range parts {
				next, freeNext := v.part(i*n, (i+1)*n).args(t, b, p.have)
				b.stages.Lock()
				err := p.have.spare(own(a)...)
				b.stages.Unlock()
				if err != nil {
					t.Fatal(err)
				}
				to := append(own(a), a.X, a.DY, a.IDs, a.DLogits, a.DZ)
				for j, from := range append(own(next), next.X, next.DY, next.IDs, next.DLogits, next.DZ) {
					data := make([]byte, from.Len()*from.Dtype().Size())
					if err := b.Read(data, from); err != nil {
						t.Fatal(err)
					}
					if err := b.Write(to[j], data); err != nil {
						t.Fatal(err)
					}
				}
				freeNext()
				if err := f.gpuFold.Add(a); err != nil {
					t.Fatal(err)
				}
			}
			want, freeWant := v.args(t, p.cpu, p.want)
			defer freeWant()
			if err := f.cpuFold.Add(want); err != nil {
				t.Fatal(err)
			}
			f.check(fmt.Sprintf("%d parts in the same buffers, %v", parts, f.dtype))
		})
	}
}

// A small fold of each kind, for compute-sanitizer: whole pieces and parts of some, held and not.
func TestFoldSanitize(t *testing.T) {
	b := openGPU(t)
	for _, s := range []contract.Shape{
		{Hidden: 384, Experts: 3, TopK: 2, Width: 256, SharedWidth: 72, NormTopK: true},
		{Hidden: 33, Experts: 3, TopK: 2, Width: 17, SharedWidth: 7, NormTopK: false},
	} {
		p := newPair(t, b, s, loud(s, 1), false)
		v := newStream(s, 150, 2, nil)
		for _, p.have.holds = range []int{0, 1} {
			eachDtype(t, p, func(f *folding) {
				f.add(v, 70, 80)
				f.check(fmt.Sprintf("%+v, holding %d, %v", s, p.have.holds, f.dtype))
			})
		}
	}
}

// The full shape, of which an FP32 gradient of gate and up alone is 2^32 bytes: every element against the CPU; and one stream of 4096
// tokens cut anyhow, held or not.
func TestFoldFull(t *testing.T) {
	if testing.Short() {
		t.Skip("3 GB of weights, 6 GB of gradients")
	}
	b := openGPU(t)
	begin := time.Now()
	lap := func(what string) {
		t.Logf("%s: %.1f s", what, time.Since(begin).Seconds())
		begin = time.Now()
	}
	s, err := testgen.Shape("qwen3-next")
	if err != nil {
		t.Fatal(err)
	}
	p := newPair(t, b, s, s.NewWeights(), false) // which are not read
	lap("layers")
	const n = 4096
	v := newStream(s, n, 2, nil)
	lap("tokens")
	for _, d := range []backend.Dtype{backend.FP32, backend.BF16} {
		f := newFolding(t, p, d)
		lap("accumulators")
		f.add(v, 64)
		if d == backend.FP32 {
			f.check("64 tokens")
			lap("64 tokens")
		} else {
			f.gpuFold.Flush()
			f.cpuFold.Flush()
		}
		f.add(v, n)
		lap("4096 tokens added")
		f.check(fmt.Sprintf("4096 tokens, %v", d))
		lap("4096 tokens")

		var first []byte
		r := seeded(5)
		var random []int
		for left := n; left > 0; {
			m := min(left, 1+r.IntN(300))
			random, left = append(random, m), left-m
		}
		for _, holds := range []int{0, 50 << 20} {
			p.have.holds = holds
			for name, sizes := range map[string][]int{"one": {n}, "4 of 1024": slices.Repeat([]int{1024}, 4), "64 of 64": slices.Repeat([]int{64}, 64), "random": random} {
				if err := b.Zero(f.gpuTo.all); err != nil {
					t.Fatal(err)
				}
				at := 0
				for _, m := range sizes {
					a, free := v.part(at, at+m).args(t, b, p.have)
					if err := f.gpuFold.Add(a); err != nil {
						t.Fatal(err)
					}
					free()
					at += m
				}
				if err := f.gpuFold.Flush(); err != nil {
					t.Fatal(err)
				}
				some := some(t, f)
				if first == nil {
					first = some
				} else if !slices.Equal(some, first) {
					t.Errorf("%s, holding %d, %v: not what another cut gives", name, holds, d)
				}
			}
		}
		p.have.holds = 0
		lap("splits")
		f.close()
	}
}

// some is the gradients of the router, the shared expert and some others.
func some(t *testing.T, f *folding) []byte {
	t.Helper()
	g := &f.gpuTo.Gradients
	buffers := []backend.Buffer{g.Router, g.SharedGate, g.Shared.Gate, g.Shared.Up, g.Shared.Down}
	for _, e := range []int{0, 1, 255, 256, 300, 511} {
		buffers = append(buffers, g.Experts[e].Gate, g.Experts[e].Up, g.Experts[e].Down)
	}
	var all []byte
	for _, b := range buffers {
		v := make([]byte, b.Len()*f.dtype.Size())
		if err := f.gpu.Read(v, b); err != nil {
			t.Fatal(err)
		}
		all = append(all, v...)
	}
	return all
}
