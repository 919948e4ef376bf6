// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
	"github.com/samebit/samebit/internal/testgen"
)

// stream is what a fold is given of some tokens, by token and slot; the shared expert's is slot K.
type stream struct {
	contract.Shape
	tokens      int
	x, dy       []contract.BF16 // [T,H]
	routed      [3][]contract.BF16
	shared      [3][]contract.BF16
	dlogits, dz []float32
	ids         []int32
	logits      int // of a token, that have a gradient
}

// newStream makes a random one; ids may be nil. Some tokens take no part.
func newStream(s contract.Shape, tokens int, seed uint64, ids []int32) *stream {
	r := seeded(seed)
	v := &stream{Shape: s, tokens: tokens, x: testgen.Tokens(tokens, s.Hidden, seed), dy: testgen.Upstream(tokens, s.Hidden, seed), ids: ids, logits: s.TopK}
	for i := range v.routed {
		v.routed[i] = testgen.Tokens(tokens*s.TopK, s.Width, seed+uint64(10+i))
		v.shared[i] = testgen.Tokens(tokens, s.SharedWidth, seed+uint64(20+i))
	}
	if !s.NormTopK {
		v.logits = s.Experts
	}
	random := func(n int) []float32 {
		f := make([]float32, n)
		for i := range f {
			f[i] = float32(r.NormFloat64())
		}
		return f
	}
	v.dlogits = random(tokens * v.logits)
	if s.SharedWidth > 0 {
		v.dz = random(tokens)
	}
	if ids == nil {
		v.ids = randomIDs(r, s, tokens, 17)
	}
	return v
}

// randomIDs leaves one token of so many out; none for 0.
func randomIDs(r *rand.Rand, s contract.Shape, tokens, leave int) []int32 {
	ids, pick := make([]int32, 0, tokens*s.TopK), make([]int32, s.Experts)
	for e := range pick {
		pick[e] = int32(e)
	}
	for range tokens {
		for k := range s.TopK {
			j := k + r.IntN(s.Experts-k)
			pick[k], pick[j] = pick[j], pick[k]
		}
		if leave > 0 && r.IntN(leave) == 0 {
			for range s.TopK {
				ids = append(ids, -1)
			}
		} else {
			ids = append(ids, pick[:s.TopK]...)
		}
	}
	return ids
}

// part is the tokens from one to another.
func (v *stream) part(from, to int) *stream {
	p := *v
	p.tokens = to - from
	cut := func(m []contract.BF16, n int) []contract.BF16 { return m[from*n : to*n] }
	p.x, p.dy = cut(v.x, v.Hidden), cut(v.dy, v.Hidden)
	for i := range p.routed {
		p.routed[i], p.shared[i] = cut(v.routed[i], v.TopK*v.Width), cut(v.shared[i], v.SharedWidth)
	}
	p.ids, p.dlogits = v.ids[from*v.TopK:to*v.TopK], v.dlogits[from*v.logits:to*v.logits]
	if v.dz != nil {
		p.dz = v.dz[from:to]
	}
	return &p
}

// args are the stream's buffers on a backend, laid out by the plan that its layer makes, and what frees them.
func (v *stream) args(t testing.TB, m backend.Backend, l backend.Layer) (a backend.FoldArgs, free func()) {
	t.Helper()
	var all []backend.Buffer
	alloc := func(d backend.Dtype, n int) backend.Buffer {
		b, err := m.Alloc(d, n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
		return b
	}
	write := func(b backend.Buffer, src []byte) backend.Buffer {
		if err := m.Write(b, src); err != nil {
			t.Fatal(err)
		}
		return b
	}
	rows := v.tokens * (v.TopK + 1)
	a.IDs = write(alloc(backend.I32, len(v.ids)), host.Bytes(v.ids))
	a.Rows = backend.Rows{Tokens: v.tokens, Slots: v.TopK, Shared: v.SharedWidth > 0, Offsets: alloc(backend.I32, v.Experts+2),
		Token: alloc(backend.I32, rows), Slot: alloc(backend.I32, rows), Row: alloc(backend.I32, rows)}
	if err := l.Plan(backend.Plan{IDs: a.IDs, Rows: a.Rows}); err != nil {
		t.Fatal(err)
	}
	row := read[int32](t, m, a.Rows.Row)
	offsets := read[int32](t, m, a.Rows.Offsets)
	a.X = write(alloc(backend.BF16, len(v.x)), host.Bytes(v.x))
	a.DY = write(alloc(backend.BF16, len(v.dy)), host.Bytes(v.dy))
	lay := func(from []contract.BF16, slots, width, slot, first int) backend.Buffer {
		laid := make([]contract.BF16, len(from))
		for t := range v.tokens {
			for k := range slots {
				if r := int(row[t*(v.TopK+1)+slot+k]) - first; row[t*(v.TopK+1)+slot+k] >= 0 {
					copy(laid[r*width:(r+1)*width], from[(t*slots+k)*width:])
				}
			}
		}
		return write(alloc(backend.BF16, len(laid)), host.Bytes(laid))
	}
	grads := func(from [3][]contract.BF16, slots, width, slot, first int) backend.RowGradients {
		return backend.RowGradients{DGate: lay(from[0], slots, width, slot, first), DUp: lay(from[1], slots, width, slot, first),
			HW: lay(from[2], slots, width, slot, first)}
	}
	a.RoutedGrad = grads(v.routed, v.TopK, v.Width, 0, 0)
	a.DLogits = write(alloc(backend.FP32, len(v.dlogits)), host.Bytes(v.dlogits))
	if v.SharedWidth > 0 {
		a.SharedGrad = grads(v.shared, 1, v.SharedWidth, v.TopK, int(offsets[v.Experts]))
		a.DZ = write(alloc(backend.FP32, len(v.dz)), host.Bytes(v.dz))
	}
	return a, func() {
		for _, b := range all {
			m.Free(b)
		}
	}
}

// target is gradients in one buffer, laid out as contract.Shape's.
type target struct {
	backend.Gradients
	all backend.Buffer
}

func newTarget(t testing.TB, m backend.Backend, s contract.Shape, d backend.Dtype) *target {
	t.Helper()
	all, err := m.Alloc(d, s.Size())
	if err != nil {
		t.Fatal(err)
	}
	g, at := &target{all: all}, 0
	cut := func(n int) backend.Buffer {
		at += n
		return all.Slice(at-n, at)
	}
	expert := func(width int) backend.ExpertGradient {
		return backend.ExpertGradient{Gate: cut(s.Hidden * width), Up: cut(s.Hidden * width), Down: cut(s.Hidden * width)}
	}
	g.Router = cut(s.Experts * s.Hidden)
	for range s.Experts {
		g.Experts = append(g.Experts, expert(s.Width))
	}
	if s.SharedWidth > 0 {
		g.SharedGate = cut(s.Hidden)
		shared := expert(s.SharedWidth)
		g.Shared = &shared
	}
	return g
}

// folding is a fold on the GPU beside one on the CPU.
type folding struct {
	*pair
	gpuTo, cpuTo     *target
	gpuFold, cpuFold backend.Fold
	dtype            backend.Dtype
}

// newFolding begins a stream into accumulators of every kind of number, or into BF16 that is NaN.
func newFolding(t testing.TB, p *pair, d backend.Dtype) *folding {
	t.Helper()
	f := &folding{pair: p, gpuTo: newTarget(t, p.gpu, p.shape, d), cpuTo: newTarget(t, p.cpu, p.shape, d), dtype: d}
	f.poison(7)
	var err error
	if f.gpuFold, err = p.have.NewFold(&f.gpuTo.Gradients); err != nil {
		t.Fatal(err)
	}
	if f.cpuFold, err = p.want.NewFold(&f.cpuTo.Gradients); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *folding) poison(seed uint64) {
	f.t.Helper()
	r := seeded(seed)
	b := make([]byte, f.shape.Size()*f.dtype.Size())
	some := b[:min(len(b), 1<<20-4)] // the rest repeats it
	for i := range some {
		some[i] = []byte{0x7F, 0xFF}[i%2]
	}
	if f.dtype == backend.FP32 {
		for i := 0; i < len(some); i += 4 {
			v := math.Float32bits(float32(r.NormFloat64()))
			switch r.IntN(40) {
			case 0:
				v = []uint32{0x80000000, 0, 1, 0x807FFFFF, 0x7FC00000, 0xFF812345, 0x7F800000, 0x7F7FFFFF}[r.IntN(8)]
			case 1:
				v = r.Uint32()
			}
			copy(some[i:], host.Bytes([]uint32{v}))
		}
	}
	for at := len(some); at < len(b); at += len(some) {
		copy(b[at:], some)
	}
	if err := f.gpu.Write(f.gpuTo.all, b); err != nil {
		f.t.Fatal(err)
	}
	if err := f.cpu.Write(f.cpuTo.all, b); err != nil {
		f.t.Fatal(err)
	}
}

// add gives the tokens to the GPU in parts of these sizes, and to the CPU at once; freed buffers are overwritten.
func (f *folding) add(v *stream, sizes ...int) {
	f.t.Helper()
	give := func(m backend.Backend, l backend.Layer, fold backend.Fold, part *stream) {
		f.t.Helper()
		a, free := part.args(f.t, m, l)
		if err := fold.Add(a); err != nil {
			f.t.Fatal(err)
		}
		free()
	}
	at := 0
	for _, n := range sizes {
		give(f.gpu, f.have, f.gpuFold, v.part(at, at+n))
		at += n
	}
	give(f.cpu, f.want, f.cpuFold, v.part(0, at))
}

// check ends the stream and compares.
func (f *folding) check(what string) bool {
	f.t.Helper()
	for _, fold := range []backend.Fold{f.gpuFold, f.cpuFold} {
		if err := fold.Flush(); err != nil {
			f.t.Fatal(err)
		}
	}
	return f.compare(what)
}

func (f *folding) compare(what string) bool {
	f.t.Helper()
	ok := true
	if f.dtype == backend.FP32 {
		sameSums(f.t, &ok, what, f.shape, read[float32](f.t, f.gpu, f.gpuTo.all), read[float32](f.t, f.cpu, f.cpuTo.all))
	} else {
		sameSums(f.t, &ok, what, f.shape, read[contract.BF16](f.t, f.gpu, f.gpuTo.all), read[contract.BF16](f.t, f.cpu, f.cpuTo.all))
	}
	return ok
}

func sameSums[T float32 | contract.BF16](t testing.TB, ok *bool, what string, s contract.Shape, have, want []T) {
	t.Helper()
	next := func(name string, rows, columns int) {
		t.Helper()
		if *ok && rows*columns > 0 && !bytes.Equal(host.Bytes(have[:rows*columns]), host.Bytes(want[:rows*columns])) {
			equal(t, ok, what, name, columns, have[:rows*columns], want[:rows*columns])
		}
		have, want = have[rows*columns:], want[rows*columns:]
	}
	next("router", s.Experts, s.Hidden)
	for e := range s.Experts {
		next(fmt.Sprintf("expert %d gate", e), s.Width, s.Hidden)
		next(fmt.Sprintf("expert %d up", e), s.Width, s.Hidden)
		next(fmt.Sprintf("expert %d down", e), s.Hidden, s.Width)
	}
	if s.SharedWidth > 0 {
		next("shared gate", 1, s.Hidden)
		next("shared expert gate", s.SharedWidth, s.Hidden)
		next("shared expert up", s.SharedWidth, s.Hidden)
		next("shared expert down", s.Hidden, s.SharedWidth)
	}
}

func (f *folding) close() {
	f.t.Helper()
	if err := f.gpuFold.Close(); err != nil {
		f.t.Error(err)
	}
	f.gpu.Free(f.gpuTo.all)
	f.cpu.Free(f.cpuTo.all)
}

// eachDtype runs a stream in FP32 and in BF16.
func eachDtype(t testing.TB, p *pair, do func(f *folding)) {
	t.Helper()
	for _, d := range []backend.Dtype{backend.FP32, backend.BF16} {
		f := newFolding(t, p, d)
		do(f)
		f.close()
	}
}
