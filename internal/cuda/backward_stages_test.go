// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// backwardWork is one backward's buffers.
type backwardWork struct {
	plan    backend.PlanBackward
	experts backend.ExpertsBackward
	route   backend.RouteBackward
	rows    backend.RowsBackward
	input   backend.InputGradient
	all     []backend.Buffer
}

// poison fills a buffer with NaN.
func poison(t testing.TB, m backend.Backend, b backend.Buffer) {
	t.Helper()
	n := b.Len() * b.Dtype().Size()
	err := error(nil)
	if gpu, is := m.(*Backend); is {
		err = gpu.gpu.Fill(b.(*buffer).at, 0xFF, n, gpu.stream)
	} else {
		err = m.Write(b, bytes.Repeat([]byte{0xFF, 0x7F}, n/2))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// newBackwardWork gives the buffers for the backward of a forward, full of NaN.
func newBackwardWork(t testing.TB, m backend.Backend, s contract.Shape, f *work, dy []contract.BF16) *backwardWork {
	t.Helper()
	w := &backwardWork{}
	alloc := func(d backend.Dtype, n int) backend.Buffer {
		b, err := m.Alloc(d, n)
		if err != nil {
			t.Fatal(err)
		}
		poison(t, m, b)
		w.all = append(w.all, b)
		return b
	}
	tokens, all := f.route.Tokens, f.route.Tokens*(s.TopK+1)
	rows := backend.Rows{Tokens: tokens, Slots: s.TopK, Shared: s.SharedWidth > 0, Offsets: alloc(backend.I32, s.Experts+2),
		Token: alloc(backend.I32, all), Slot: alloc(backend.I32, all), Row: alloc(backend.I32, all)}
	gradients := func(n int) backend.RowGradients {
		return backend.RowGradients{DGate: alloc(backend.BF16, n), DUp: alloc(backend.BF16, n), HW: alloc(backend.BF16, n)}
	}
	routed := gradients(tokens * s.TopK * s.Width)
	var shared backend.RowGradients
	var dz backend.Buffer
	if rows.Shared {
		shared, dz = gradients(tokens*s.SharedWidth), alloc(backend.FP32, tokens)
	}
	logits := s.Experts
	if s.NormTopK {
		logits = s.TopK
	}
	r := f.route
	w.plan = backend.PlanBackward{DY: alloc(backend.BF16, len(dy)), IDs: r.IDs, Weights: r.Weights, Z: r.Z, Rows: rows, Weight: alloc(backend.FP32, all)}
	w.experts = backend.ExpertsBackward{DY: w.plan.DY, Rows: rows, Weight: w.plan.Weight, Forward: f.plan.Rows, Routed: f.gateUp.Routed,
		Shared: f.gateUp.Shared, RoutedGrad: routed, SharedGrad: shared, DWeight: alloc(backend.FP32, all)}
	w.route = backend.RouteBackward{Rows: rows, DWeight: w.experts.DWeight, Logits: r.Logits, IDs: r.IDs, Weights: r.Weights, Z: r.Z,
		DLogits: alloc(backend.FP32, tokens*logits), DZ: dz}
	w.rows = backend.RowsBackward{Rows: rows, RoutedGrad: routed, SharedGrad: shared, Out: alloc(backend.BF16, all*s.Hidden)}
	w.input = backend.InputGradient{Rows: rows, In: w.rows.Out, IDs: r.IDs, DLogits: w.route.DLogits, DZ: dz, DX: alloc(backend.BF16, len(dy))}
	if err := m.Write(w.plan.DY, host.Bytes(dy)); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *backwardWork) run(l backend.Layer) error {
	return errors.Join(l.PlanBackward(w.plan), l.ExpertsBackward(w.experts), l.RouteBackward(w.route), l.RowsBackward(w.rows), l.InputGradient(w.input))
}

// poison fills all but dy with NaN.
func (w *backwardWork) poison(t testing.TB, m backend.Backend) {
	for _, b := range w.all {
		if b != w.plan.DY {
			poison(t, m, b)
		}
	}
}

func (w *backwardWork) free(m backend.Backend) {
	for _, b := range w.all {
		m.Free(b)
	}
}

// gradients is what a backward makes, in the order of its making; of buffers with room for more rows than there are, the rows.
type gradients struct {
	offsets, token, slot, row    []int32
	weight, dweight, dlogits, dz []float32
	routed, shared               [3][]contract.BF16 // dg, du, hw
	out, dx                      []contract.BF16
}

// anyNaN makes all NaN one: inside, an FP32 NaN has no defined bits (R0).
func anyNaN(v []float32) []float32 {
	for i, f := range v {
		if f != f {
			v[i] = math.Float32frombits(0x7FFFFFFF)
		}
	}
	return v
}

func (w *backwardWork) read(t testing.TB, m backend.Backend, s contract.Shape) gradients {
	t.Helper()
	g := gradients{offsets: read[int32](t, m, w.plan.Rows.Offsets), row: read[int32](t, m, w.plan.Rows.Row), dx: read[contract.BF16](t, m, w.input.DX)}
	routed, rows := int(g.offsets[s.Experts]), int(g.offsets[s.Experts+1])
	if routed < 0 || rows < routed || rows > w.plan.Rows.Tokens*(s.TopK+1) {
		t.Errorf("%d routed rows of %d", routed, rows)
		return g
	}
	g.token, g.slot = read[int32](t, m, w.plan.Rows.Token)[:rows], read[int32](t, m, w.plan.Rows.Slot)[:rows]
	g.weight, g.dweight = anyNaN(read[float32](t, m, w.plan.Weight)[:rows]), anyNaN(read[float32](t, m, w.experts.DWeight)[:rows])
	for i, b := range []backend.Buffer{w.rows.RoutedGrad.DGate, w.rows.RoutedGrad.DUp, w.rows.RoutedGrad.HW} {
		g.routed[i] = read[contract.BF16](t, m, b)[:routed*s.Width]
	}
	g.out = read[contract.BF16](t, m, w.rows.Out)[:rows*s.Hidden]
	g.dlogits = anyNaN(read[float32](t, m, w.route.DLogits))
	if s.SharedWidth > 0 {
		for i, b := range []backend.Buffer{w.rows.SharedGrad.DGate, w.rows.SharedGrad.DUp, w.rows.SharedGrad.HW} {
			g.shared[i] = read[contract.BF16](t, m, b)[:(rows-routed)*s.SharedWidth]
		}
		g.dz = anyNaN(read[float32](t, m, w.route.DZ))
	}
	wide := len(g.dlogits) / max(1, w.plan.Rows.Tokens)
	for t := range w.plan.Rows.Tokens { // tokens without rows have none
		if g.row[t*(s.TopK+1)] < 0 {
			clear(g.dlogits[t*wide : (t+1)*wide])
			if g.dz != nil {
				g.dz[t] = 0
			}
		}
	}
	return g
}

// sameGradients compares two backwards and says at which stage they part.
func sameGradients(t testing.TB, what string, s contract.Shape, have, want gradients) bool {
	t.Helper()
	ok := true
	equal(t, &ok, what, "offsets", 1, have.offsets, want.offsets)
	equal(t, &ok, what, "token", 1, have.token, want.token)
	equal(t, &ok, what, "slot", 1, have.slot, want.slot)
	equal(t, &ok, what, "row", s.TopK+1, have.row, want.row)
	equal(t, &ok, what, "weight", 1, have.weight, want.weight)
	if !ok {
		return false // what follows would only repeat it
	}
	for i, name := range []string{"dg", "du", "hw"} {
		equal(t, &ok, what, name, s.Width, have.routed[i], want.routed[i])
		equal(t, &ok, what, "shared "+name, max(1, s.SharedWidth), have.shared[i], want.shared[i])
	}
	equal(t, &ok, what, "dw", 1, have.dweight, want.dweight)
	if !ok {
		return false
	}
	equal(t, &ok, what, "dl", max(1, len(want.dlogits)/max(1, len(want.row)/(s.TopK+1))), have.dlogits, want.dlogits)
	equal(t, &ok, what, "dz", 1, have.dz, want.dz)
	equal(t, &ok, what, "rows", s.Hidden, have.out, want.out)
	if ok {
		equal(t, &ok, what, "dx", s.Hidden, have.dx, want.dx)
	}
	return ok
}

// backward runs a forward and its backward, and reads what the latter made.
func backward(t testing.TB, m backend.Backend, l backend.Layer, s contract.Shape, x, dy []contract.BF16, replay []int32) gradients {
	t.Helper()
	f := newWork(t, m, s, x, replay, true)
	defer f.free(m)
	b := newBackwardWork(t, m, s, f, dy)
	defer b.free(m)
	if err := errors.Join(f.run(l), b.run(l)); err != nil {
		t.Fatal(err)
	}
	return b.read(t, m, s)
}

func (p *pair) checkBackward(what string, x, dy []contract.BF16, replay []int32) bool {
	p.t.Helper()
	have := backward(p.t, p.gpu, p.have, p.shape, x, dy, replay)
	return sameGradients(p.t, what, p.shape, have, backward(p.t, p.cpu, p.want, p.shape, x, dy, replay))
}
