// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/bits"
	_ "github.com/samebit/samebit/internal/cpu"
	"github.com/samebit/samebit/internal/host"
)

// openGPU gives the backend, or skips where the machine has none: unless SAMEBIT_REQUIRE says that it must.
func openGPU(t testing.TB) *Backend {
	t.Helper()
	b, err := backend.Open("cuda", backend.Options{})
	if need := (*backend.UnsupportedError)(nil); errors.As(err, &need) && !strings.Contains(os.Getenv("SAMEBIT_REQUIRE"), "cuda") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b.(*Backend)
}

// work is one forward's buffers.
type work struct {
	route   backend.Route
	plan    backend.Plan
	gateUp  backend.GateUp
	down    backend.Down
	combine backend.Combine
	all     []backend.Buffer
}

// newWork gives buffers full of NaN.
func newWork(t testing.TB, m backend.Memory, s contract.Shape, x []contract.BF16, replay []int32, train bool) *work {
	t.Helper()
	w := &work{}
	alloc := func(d backend.Dtype, n int) backend.Buffer {
		b, err := m.Alloc(d, n)
		if gpu, is := m.(*Backend); is && err == nil {
			err = gpu.gpu.Fill(b.(*buffer).at, 0xFF, n*d.Size(), gpu.stream)
		} else if err == nil {
			err = m.Write(b, bytes.Repeat([]byte{0xFF, 0x7F}, n*d.Size()/2))
		}
		if err != nil {
			t.Fatal(err)
		}
		w.all = append(w.all, b)
		return b
	}
	tokens := len(x) / s.Hidden
	rows := backend.Rows{Tokens: tokens, Slots: s.TopK, Shared: s.SharedWidth > 0, Offsets: alloc(backend.I32, s.Experts+2)}
	all := tokens * (s.TopK + 1)
	rows.Token, rows.Slot, rows.Row = alloc(backend.I32, all), alloc(backend.I32, all), alloc(backend.I32, all)
	w.route = backend.Route{Tokens: tokens, X: alloc(backend.BF16, len(x)), Logits: alloc(backend.FP32, tokens*s.Experts),
		Status: alloc(backend.I32, tokens), IDs: alloc(backend.I32, tokens*s.TopK), Weights: alloc(backend.FP32, tokens*s.TopK)}
	activations := func(n int) backend.Activations {
		a := backend.Activations{H: alloc(backend.BF16, n)}
		if train {
			a.G, a.U = alloc(backend.FP32, n), alloc(backend.FP32, n)
		}
		return a
	}
	routed := activations(tokens * s.TopK * s.Width)
	var shared backend.Activations
	if rows.Shared {
		w.route.Z = alloc(backend.FP32, tokens)
		shared = activations(tokens * s.SharedWidth)
	}
	if replay != nil {
		w.route.Replay = alloc(backend.I32, len(replay))
		if err := m.Write(w.route.Replay, host.Bytes(replay)); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Write(w.route.X, host.Bytes(x)); err != nil {
		t.Fatal(err)
	}
	w.plan = backend.Plan{IDs: w.route.IDs, Rows: rows}
	w.gateUp = backend.GateUp{X: w.route.X, Rows: rows, Routed: routed, Shared: shared}
	w.down = backend.Down{Rows: rows, Routed: routed, Shared: shared, Out: alloc(backend.BF16, all*s.Hidden)}
	w.combine = backend.Combine{Rows: rows, In: w.down.Out, Weights: w.route.Weights, Z: w.route.Z, Status: w.route.Status,
		Y: alloc(backend.BF16, len(x))}
	return w
}

func (w *work) run(l backend.Layer) error {
	return errors.Join(l.Route(w.route), l.Plan(w.plan), l.GateUp(w.gateUp), l.Down(w.down), l.Combine(w.combine))
}

func (w *work) free(m backend.Backend) {
	for _, b := range w.all {
		m.Free(b)
	}
}

// outcome is everything that a forward makes, in the order of its making.
type outcome struct {
	logits, z, weights        []float32
	status, ids               []int32
	offsets, token, slot, row []int32
	g, u, sharedG, sharedU    []float32
	h, sharedH, out, y        []contract.BF16
}

func read[T any](t testing.TB, m backend.Backend, b backend.Buffer) []T {
	t.Helper()
	if b == nil {
		return nil
	}
	v := make([]T, b.Len())
	if err := m.Read(host.Bytes(v), b); err != nil {
		t.Fatal(err)
	}
	return v
}

// forward runs the stages and reads what they made; of buffers with room for more rows than there are, the rows.
func forward(t testing.TB, m backend.Backend, l backend.Layer, s contract.Shape, x []contract.BF16, replay []int32, train bool) outcome {
	t.Helper()
	w := newWork(t, m, s, x, replay, train)
	defer w.free(m)
	if err := w.run(l); err != nil {
		t.Fatal(err)
	}
	o := outcome{
		logits: read[float32](t, m, w.route.Logits), z: read[float32](t, m, w.route.Z), weights: read[float32](t, m, w.route.Weights),
		status: read[int32](t, m, w.route.Status), ids: read[int32](t, m, w.route.IDs),
		offsets: read[int32](t, m, w.plan.Rows.Offsets), row: read[int32](t, m, w.plan.Rows.Row),
		y: read[contract.BF16](t, m, w.combine.Y),
	}
	if len(x)/s.Hidden > 5000 { // the rest is large
		return o
	}
	routed, rows := int(o.offsets[s.Experts]), int(o.offsets[s.Experts+1])
	if routed < 0 || rows < routed || rows > len(x)/s.Hidden*(s.TopK+1) {
		t.Errorf("%d routed rows of %d", routed, rows)
		return o
	}
	o.token, o.slot = read[int32](t, m, w.plan.Rows.Token)[:rows], read[int32](t, m, w.plan.Rows.Slot)[:rows]
	o.h = read[contract.BF16](t, m, w.gateUp.Routed.H)[:routed*s.Width]
	o.out = read[contract.BF16](t, m, w.down.Out)[:rows*s.Hidden]
	if s.SharedWidth > 0 {
		o.sharedH = read[contract.BF16](t, m, w.gateUp.Shared.H)[:(rows-routed)*s.SharedWidth]
	}
	if train {
		o.g, o.u = read[float32](t, m, w.gateUp.Routed.G)[:routed*s.Width], read[float32](t, m, w.gateUp.Routed.U)[:routed*s.Width]
		if s.SharedWidth > 0 {
			n := (rows - routed) * s.SharedWidth
			o.sharedG, o.sharedU = read[float32](t, m, w.gateUp.Shared.G)[:n], read[float32](t, m, w.gateUp.Shared.U)[:n]
		}
	}
	return o
}

// equal compares matrices of n columns.
func equal[T safetensors.Element](t testing.TB, ok *bool, what, name string, n int, have, want []T) {
	t.Helper()
	if len(have) != len(want) {
		t.Errorf("%s: %s: %d elements, want %d", what, name, len(have), len(want))
		*ok = false
	} else if d := bits.Slices(name, []int{len(want) / n, n}, have, want, bits.AllowNonFinite); !d.Same() {
		t.Errorf("%s: %v (have against want)", what, d)
		*ok = false
	}
}

// same compares two outcomes and says at which stage they part.
func same(t testing.TB, what string, s contract.Shape, have, want outcome) bool {
	t.Helper()
	ok := true
	equal(t, &ok, what, "logits", s.Experts, have.logits, want.logits)
	equal(t, &ok, what, "z", 1, have.z, want.z)
	equal(t, &ok, what, "status", 1, have.status, want.status)
	equal(t, &ok, what, "ids", s.TopK, have.ids, want.ids)
	equal(t, &ok, what, "weights", s.TopK, have.weights, want.weights)
	equal(t, &ok, what, "offsets", 1, have.offsets, want.offsets)
	equal(t, &ok, what, "token", 1, have.token, want.token)
	equal(t, &ok, what, "slot", 1, have.slot, want.slot)
	equal(t, &ok, what, "row", s.TopK+1, have.row, want.row)
	if !ok {
		return false // what follows would only repeat it
	}
	equal(t, &ok, what, "g", s.Width, have.g, want.g)
	equal(t, &ok, what, "u", s.Width, have.u, want.u)
	equal(t, &ok, what, "h", s.Width, have.h, want.h)
	equal(t, &ok, what, "shared g", max(1, s.SharedWidth), have.sharedG, want.sharedG)
	equal(t, &ok, what, "shared u", max(1, s.SharedWidth), have.sharedU, want.sharedU)
	equal(t, &ok, what, "shared h", max(1, s.SharedWidth), have.sharedH, want.sharedH)
	if ok {
		equal(t, &ok, what, "rows", s.Hidden, have.out, want.out)
	}
	if ok {
		equal(t, &ok, what, "y", s.Hidden, have.y, want.y)
	}
	return ok
}

// pair is a layer on the GPU beside the same on the CPU, which contracttest holds to the contract.
type pair struct {
	t        testing.TB
	shape    contract.Shape
	gpu, cpu backend.Backend
	have     *layer
	want     backend.Layer
}

func newPair(t testing.TB, gpu *Backend, s contract.Shape, w *contract.Weights, bf16Logits bool) *pair {
	t.Helper()
	cpu, err := backend.Open("cpu", backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	spec := backend.Spec{Shape: s, Weights: w, BF16Logits: bf16Logits}
	have, err := gpu.Load(spec)
	if err != nil {
		t.Fatal(fmt.Errorf("%+v: %w", s, err))
	}
	want, err := cpu.Load(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { have.Close() })
	return &pair{t, s, gpu, cpu, have.(*layer), want}
}

func (p *pair) check(what string, x []contract.BF16, replay []int32, train bool) {
	p.t.Helper()
	have := forward(p.t, p.gpu, p.have, p.shape, x, replay, train)
	same(p.t, what, p.shape, have, forward(p.t, p.cpu, p.want, p.shape, x, replay, train))
}

// everyTiling compares a forward by each tiling, and says whether all are the same.
func (p *pair) everyTiling(what string, x []contract.BF16, train bool) bool {
	p.t.Helper()
	defer func() { p.have.tiling = nil }()
	want := forward(p.t, p.cpu, p.want, p.shape, x, nil, train)
	all := true
	for i := range Tilings {
		p.have.tiling = &Tilings[i]
		name := fmt.Sprintf("%s, tape %t, tiles %v", what, train, Tilings[i])
		all = same(p.t, name, p.shape, forward(p.t, p.gpu, p.have, p.shape, x, nil, train), want) && all
	}
	return all
}
