// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
)

// What a fold launches, in FP32 and in BF16: nothing but the router's sums before Flush, unless it holds too much.
func TestFoldLaunches(t *testing.T) {
	b, fake := fakeBackend(t)
	dense := tinyShape
	dense.NormTopK = false
	for _, c := range []struct {
		shape        contract.Shape
		dtype        backend.Dtype
		calls, holds int
		want         string
	}{
		{tinyShape, backend.FP32, 0, 0, ""},
		{tinyShape, backend.FP32, 1, 0, "fold_router_f32+ | fold_lay_i32+ fold_place_i32+ fold_experts_f32+"},
		{tinyShape, backend.BF16, 0, 0, "| fold_lay_i32+ fold_experts_bf16+ fold_round_bf16+ fold_round_bf16+"},
		{dense, backend.BF16, 1, 0, "fold_router_dense_f32+ fold_router_f32+ | fold_lay_i32+ fold_place_i32+ fold_experts_bf16+ fold_round_bf16+ fold_round_bf16+"},
		{tinyShape, backend.FP32, 2, 1, "fold_router_f32+ fold_router_f32+ fold_lay_i32+ fold_place_i32+ fold_experts_f32+ fold_keep_bf16+ | " +
			"fold_lay_i32+ fold_place_i32+ fold_experts_f32+"},
		{tinyShape, backend.FP32, 34, 0, strings.Repeat("fold_router_f32+ ", 34) + "| fold_lay_i32+ fold_lay_i32+ fold_place_i32+ fold_place_i32+ fold_experts_f32+"},
	} {
		w := testgen.Weights(c.shape, 1)
		loaded, err := b.Load(backend.Spec{Shape: c.shape, Weights: &w})
		if err != nil {
			t.Fatal(err)
		}
		l := loaded.(*layer)
		l.holds = c.holds
		to := newTarget(t, b, c.shape, c.dtype)
		f, err := l.NewFold(&to.Gradients)
		if err != nil {
			t.Fatal(err)
		}
		fake.Launches = nil
		for range c.calls {
			a, free := fakeArgs(t, b, c.shape, 5)
			if err := f.Add(a); err != nil {
				t.Fatal(err)
			}
			free()
		}
		fake.Launches = append(fake.Launches, "|")
		if err := f.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(fake.Launches, " "); strings.TrimSuffix(got, "|") != c.want {
			t.Errorf("%d calls, %v: got %s, want %s", c.calls, c.dtype, got, c.want)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// fakeArgs are buffers of the right sizes.
func fakeArgs(t testing.TB, b *Backend, s contract.Shape, tokens int) (a backend.FoldArgs, free func()) {
	var all []backend.Buffer
	alloc := func(d backend.Dtype, n int) backend.Buffer {
		v, err := b.Alloc(d, n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
		return v
	}
	grads := func(n int) backend.RowGradients {
		return backend.RowGradients{DGate: alloc(backend.BF16, n), DUp: alloc(backend.BF16, n), HW: alloc(backend.BF16, n)}
	}
	rows := tokens * (s.TopK + 1)
	logits := s.TopK
	if !s.NormTopK {
		logits = s.Experts
	}
	a = backend.FoldArgs{X: alloc(backend.BF16, tokens*s.Hidden), DY: alloc(backend.BF16, tokens*s.Hidden),
		Rows: backend.Rows{Tokens: tokens, Slots: s.TopK, Shared: true, Offsets: alloc(backend.I32, s.Experts+2), Token: alloc(backend.I32, rows),
			Slot: alloc(backend.I32, rows), Row: alloc(backend.I32, rows)},
		RoutedGrad: grads(tokens * s.TopK * s.Width), SharedGrad: grads(tokens * s.SharedWidth),
		IDs: alloc(backend.I32, tokens*s.TopK), DLogits: alloc(backend.FP32, tokens*logits), DZ: alloc(backend.FP32, tokens)}
	return a, func() {
		for _, v := range all {
			b.Free(v)
		}
	}
}

// The memory of a call's buffers is nobody else's until Flush, though they were given back; and everything is given back in the end.
func TestFoldKeeps(t *testing.T) {
	b, fake := fakeBackend(t)
	for _, s := range []contract.Shape{tinyShape, {Hidden: 33, Experts: 3, TopK: 2, Width: 17, SharedWidth: 7, NormTopK: true}} {
		l := loadFake(t, b, s)
		to := newTarget(t, b, s, backend.BF16)
		f, err := l.NewFold(&to.Gradients)
		if err != nil {
			t.Fatal(err)
		}
		a, free := fakeArgs(t, b, s, 9)
		held := []pointer{bf16(a.X), bf16(a.DY), bf16(a.RoutedGrad.DGate), bf16(a.SharedGrad.HW), i32(a.Rows.Token), i32(a.Rows.Offsets)}
		if err := f.Add(a); err != nil {
			t.Fatal(err)
		}
		free()
		if s.Hidden%8 != 0 {
			held = held[4:] // rows that cannot be gathered were copied
		}
		used := func() []pointer {
			again, free := fakeArgs(t, b, s, 9)
			defer free()
			return []pointer{bf16(again.X), bf16(again.DY), bf16(again.RoutedGrad.DGate), bf16(again.SharedGrad.HW), i32(again.Rows.Token), i32(again.Rows.Offsets)}
		}
		for i, p := range used() {
			if slices.Contains(held, p) {
				t.Errorf("%+v: buffer %d lies where a held one does", s, i)
			}
		}
		if err := f.Flush(); err != nil {
			t.Fatal(err)
		}
		if len(b.kept)+len(b.late) > 0 {
			t.Errorf("%+v: %d kept, %d late after Flush", s, len(b.kept), len(b.late))
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := b.Close(); err != nil || fake.Left() != 0 {
		t.Errorf("close: %v, %d allocations left", err, fake.Left())
	}
}

// A stream is in a graph as a whole, or not at all.
func TestFoldInGraph(t *testing.T) {
	b, _ := fakeBackend(t)
	l := loadFake(t, b, tinyShape)
	to := newTarget(t, b, tinyShape, backend.FP32)
	a, free := fakeArgs(t, b, tinyShape, 5)
	defer free()
	for _, add := range []bool{false, true} { // whether a graph has the Add, or the Flush
		f, err := l.NewFold(&to.Gradients)
		if err != nil {
			t.Fatal(err)
		}
		both := func() error { return errors.Join(f.Add(a), f.Flush()) }
		if _, err := b.Capture(both); err != nil {
			t.Errorf("a whole stream: %v", err)
		}
		if err := both(); err != nil {
			t.Errorf("a stream after a graph: %v", err)
		}
		in, out := func() error { return f.Add(a) }, f.Flush
		if !add {
			in, out = out, in
			if err := out(); err != nil {
				t.Fatal(err)
			}
		}
		_, err = b.Capture(in)
		if add && err == nil {
			err = out()
		}
		if err == nil || !strings.Contains(err.Error(), "in a graph in part") {
			t.Errorf("half a stream in a graph (Add: %t): got %v", add, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
