// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/cuda/driver"
	"github.com/samebit/samebit/internal/cuda/image"
	"github.com/samebit/samebit/internal/host"
	"github.com/samebit/samebit/internal/testgen"
)

// fakeBackend is a backend on a GPU that does nothing.
func fakeBackend(t *testing.T) (*Backend, *driver.Fake) {
	t.Helper()
	f := &driver.Fake{}
	gpu, err := driver.OpenFake(f)
	if err != nil {
		t.Fatal(err)
	}
	b := &Backend{memory: memory{gpu: gpu, stream: 7}}
	for i, name := range image.Kernels {
		if b.kernels[i], err = gpu.Function(0, name, mostShared(i)); err != nil {
			t.Fatal(err)
		}
	}
	return b, f
}

// loadFake is a layer of some weights there.
func loadFake(t *testing.T, b *Backend, s contract.Shape) backend.Layer {
	t.Helper()
	w := testgen.Weights(s, 1)
	l, err := b.Load(backend.Spec{Shape: s, Weights: &w})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// What is freed is used again; all of it is given back in the end.
func TestPool(t *testing.T) {
	b, f := fakeBackend(t)
	first, err := b.Alloc(backend.FP32, 1000)
	if err != nil {
		t.Fatal(err)
	}
	at := fp32(first)
	b.Free(first)
	again, err := b.Alloc(backend.I32, 1020) // of the same size class
	if err != nil || i32(again) != at {
		t.Errorf("got %v at %x, want what was freed at %x", err, i32(again), at)
	}
	part := again.Slice(10, 20)
	if part.Len() != 10 || i32(part) != at+40 {
		t.Errorf("slice: %d elements at %x", part.Len(), i32(part))
	}
	b.Free(part)
	if other, _ := b.Alloc(backend.I32, 1020); i32(other) == at {
		t.Error("freeing a slice freed the buffer")
	}
	if err := b.Close(); err != nil || f.Left() != 0 {
		t.Errorf("close: %v, %d allocations left", err, f.Left())
	}
}

// What scratch memory outgrew is not given to others while the layer lives.
func TestScratch(t *testing.T) {
	b, f := fakeBackend(t)
	var s scratch
	first, err := b.scratch(&s, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := b.scratch(&s, 900); again != first {
		t.Error("moved without need")
	}
	if _, err := b.scratch(&s, 5000); err != nil {
		t.Fatal(err)
	}
	if other, _ := b.Alloc(backend.BF16, 500); bf16(other) == first {
		t.Error("what was outgrown is in others' hands")
	}
	b.release(&s)
	if other, _ := b.Alloc(backend.BF16, 500); bf16(other) != first {
		t.Error("what was outgrown is not given back")
	}
	if err := b.Close(); err != nil || f.Left() != 0 {
		t.Errorf("close: %v, %d allocations left", err, f.Left())
	}
}

func TestSizeClass(t *testing.T) {
	for n, want := range map[int]int{1: 512, 512: 512, 513: 640, 1 << 20: 1 << 20, 1<<20 + 1: 5 << 18, 1 << 31: 1 << 31} {
		if got := sizeClass(n); got != want {
			t.Errorf("%d bytes: got %d, want %d", n, got, want)
		}
	}
}

// Weights arrive stacked by expert, rows padded with zeros to multiples of eight.
func TestUpload(t *testing.T) {
	b, _ := fakeBackend(t)
	s := contract.Shape{Hidden: 33, Experts: 3, TopK: 1, Width: 17, SharedWidth: 8}
	w := testgen.Weights(s, 1)
	loaded, err := b.Load(backend.Spec{Shape: s, Weights: &w})
	if err != nil {
		t.Fatal(err)
	}
	l := loaded.(*layer)
	read := func(p pointer, n int) []contract.BF16 {
		v := make([]contract.BF16, n)
		if err := b.gpu.ToHost(host.Bytes(v), p, b.stream); err != nil {
			t.Fatal(err)
		}
		return v
	}
	padded := func(m []contract.BF16, columns, pitch, rows int) []contract.BF16 {
		v := make([]contract.BF16, rows*pitch)
		for i := range len(m) / columns {
			copy(v[i*pitch:], m[i*columns:(i+1)*columns])
		}
		return v
	}
	var gate, up, joined, down []contract.BF16
	for _, e := range w.Experts {
		gate = append(gate, padded(e.Gate, 33, 40, 24)...)
		up = append(up, padded(e.Up, 33, 40, 24)...)
		joined = append(joined, append(padded(e.Gate, 33, 40, 17), padded(e.Up, 33, 40, 17)...)...)
		down = append(down, padded(e.Down, 17, 24, 33)...)
	}
	for name, c := range map[string]struct {
		at   pointer
		want []contract.BF16
	}{
		"router":      {l.w.router, padded(append(slices.Clone(w.Router), w.SharedGate...), 33, 40, 4)},
		"gate and up": {l.w.routed.gateUp, append(gate, up...)},
		"down":        {l.w.routed.down, down},
		"joined":      {l.w.routed.joined, joined},
		"shared":      {l.w.shared.gateUp, append(padded(w.Shared.Gate, 33, 40, 8), padded(w.Shared.Up, 33, 40, 8)...)},
	} {
		if !slices.Equal(read(c.at, len(c.want)), c.want) {
			t.Errorf("%s is not the weights", name)
		}
	}
	w.Experts[2].Down[5] = 0x7FC0
	if err := l.Refresh(); err == nil || !strings.Contains(err.Error(), "expert 2 down has NaN at 5") {
		t.Errorf("a NaN: got %v", err)
	}
}

// Which kernels a forward takes, and which may start before the one before them has ended.
func TestLaunches(t *testing.T) {
	b, f := fakeBackend(t)
	s := tinyShape
	l := loadFake(t, b, s)
	for _, c := range []struct {
		tokens int
		want   string
	}{
		{0, ""},
		{5, "route_segments_fwd_bf16+ route_select_spread_512_f32+ plan_one_i32+ experts_gate_up_fwd_1x64x1_bf16+ experts_down_fwd_1x64x1_bf16+ combine_rows_fwd_bf16+"},
		{300, "route_logits_fwd_few_bf16+ route_select_512_f32+ plan_count_i32+ plan_lay_i32+ plan_place_i32+ " +
			"experts_gate_up_fwd_2x128x1_bf16+ experts_down_fwd_2x128x1_bf16+ combine_rows_fwd_bf16+"},
		{400, "route_logits_fwd_few_bf16+ route_select_512_f32+ plan_count_i32+ plan_lay_i32+ plan_place_i32+ " +
			"experts_gate_up_fwd_2x176x1_bf16+ experts_down_fwd_2x176x1_bf16+ combine_rows_fwd_bf16+"},
		{5000, "route_logits_fwd_many_bf16+ route_select_512_f32+ plan_count_i32+ plan_add_i32+ plan_lay_i32+ plan_place_i32+ " +
			"experts_gate_up_fwd_2x176x2_bf16+ experts_down_fwd_2x176x2_bf16+ combine_rows_fwd_bf16+"},
	} {
		f.Launches = nil
		v := newWork(t, b, s, testgen.Tokens(c.tokens, s.Hidden, 1), nil, false)
		if err := v.run(l); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(f.Launches, " "); got != c.want {
			t.Errorf("%d tokens: got %s, want %s", c.tokens, got, c.want)
		}
		f.Launches = nil
		if err := errors.Join(l.Combine(v.combine), l.Down(v.down)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(f.Launches, " "); strings.Contains(got, "+") {
			t.Errorf("%d tokens: out of order, yet early: %s", c.tokens, got)
		}
		v.free(b)
	}
}

// Down may start before the kernel before it has ended where that is gate and up, which must not have been asked for on the other side of a
// graph's ends.
func TestGraphEnds(t *testing.T) {
	b, f := fakeBackend(t)
	l := loadFake(t, b, tinyShape)
	v := newWork(t, b, tinyShape, testgen.Tokens(5, tinyShape.Hidden, 1), nil, false)
	defer v.free(b)
	if err := v.run(l); err != nil {
		t.Fatal(err)
	}
	var g backend.Graph
	gateUp := func() error { return l.GateUp(v.gateUp) }
	for _, c := range []struct {
		what   string
		before func() error
		early  bool
	}{
		{"after gate and up", gateUp, true},
		{"after a graph of them", func() (err error) { g, err = b.Capture(gateUp); return }, false},
		{"after them and a replay", func() error { return errors.Join(gateUp(), g.Replay()) }, false},
	} {
		f.Launches = nil
		if err := errors.Join(c.before(), l.Down(v.down)); err != nil {
			t.Fatal(err)
		}
		if down := f.Launches[len(f.Launches)-1]; strings.HasSuffix(down, "+") != c.early {
			t.Errorf("%s: got %s, early is to be %v", c.what, down, c.early)
		}
	}
	if err := gateUp(); err != nil {
		t.Fatal(err)
	}
	f.Launches = nil
	if _, err := b.Capture(func() error { return l.Down(v.down) }); err != nil || f.Launches[0] != "experts_down_fwd_1x64x1_bf16" {
		t.Errorf("the first of a graph: %v, %v", err, f.Launches)
	}
}

// Products read tiles and weights before the kernel ahead of them has ended where their plan is older than that one, and nowhere else.
func TestAhead(t *testing.T) {
	odd := contract.Shape{Hidden: 33, Experts: 5, TopK: 2, Width: 17, SharedWidth: 16}
	for _, c := range []struct {
		what   string
		shape  contract.Shape
		tokens int
		run    func(b *Backend, l *layer, f *work, v *backwardWork) error
		want   string
	}{
		{"one kernel plans", tinyShape, 5, func(b *Backend, l *layer, f *work, v *backwardWork) error { return errors.Join(f.run(l), v.run(l)) },
			"gate_up_fwd 0, down_bwd 1, gate_up_bwd 1"},
		{"several plan", tinyShape, 300, func(b *Backend, l *layer, f *work, v *backwardWork) error { return errors.Join(f.run(l), v.run(l)) },
			"gate_up_fwd 1, down_bwd 1, gate_up_bwd 1"},
		{"rows are copied in between", odd, 300, func(b *Backend, l *layer, f *work, v *backwardWork) error { return errors.Join(f.run(l), v.run(l)) },
			"gate_up_fwd 0, down_bwd 0, gate_up_bwd 0"},
		{"another stage in between", tinyShape, 300, func(b *Backend, l *layer, f *work, v *backwardWork) error {
			return errors.Join(l.Plan(f.plan), l.Combine(f.combine), l.GateUp(f.gateUp), l.PlanBackward(v.plan), l.ExpertsBackward(v.experts), l.RowsBackward(v.rows))
		}, "gate_up_fwd 0, down_bwd 1, gate_up_bwd 0"},
		{"a graph begins in between", tinyShape, 300, func(b *Backend, l *layer, f *work, v *backwardWork) error {
			err := l.Plan(f.plan)
			_, e := b.Capture(func() error { return l.GateUp(f.gateUp) })
			err = errors.Join(err, e, l.PlanBackward(v.plan), l.ExpertsBackward(v.experts), l.RouteBackward(v.route))
			_, e = b.Capture(func() error { return l.RowsBackward(v.rows) })
			return errors.Join(err, e)
		}, "gate_up_fwd 0, down_bwd 1, gate_up_bwd 0"},
	} {
		b, fake := fakeBackend(t)
		l := loadFake(t, b, c.shape)
		f := newWork(t, b, c.shape, testgen.Tokens(c.tokens, c.shape.Hidden, 1), nil, true)
		v := newBackwardWork(t, b, c.shape, f, testgen.Upstream(c.tokens, c.shape.Hidden, 1))
		var got []string
		fake.Launched = func(kernel string, p unsafe.Pointer) {
			for part, ahead := range map[string]func() int32{
				"gate_up_fwd": func() int32 { return (*gateUpParams)(p).ahead },
				"down_bwd":    func() int32 { return (*downBackwardParams)(p).ahead },
				"gate_up_bwd": func() int32 { return (*gateUpBackwardParams)(p).ahead },
			} {
				if strings.HasPrefix(kernel, "experts_"+part) {
					got = append(got, fmt.Sprint(part, " ", ahead()))
				}
			}
		}
		if err := c.run(b, l.(*layer), f, v); err != nil {
			t.Fatal(c.what, err)
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%s: got %s, want %s", c.what, got, c.want)
		}
	}
}

// A queue's stages go into the stream that it is told, and its end leaves the layer's memory alone.
func TestQueue(t *testing.T) {
	b, f := fakeBackend(t)
	s := tinyShape
	l := loadFake(t, b, s)
	before := f.Left()
	q, err := l.(backend.Device).Queue()
	if err != nil {
		t.Fatal(err)
	}
	v := newWork(t, q, s, testgen.Tokens(5, s.Hidden, 1), nil, false)
	run := func(want driver.Stream) {
		if err := v.run(q); err != nil {
			t.Fatal(err)
		}
		if f.Stream != want {
			t.Errorf("launched in stream %d, want %d", f.Stream, want)
		}
	}
	run(7) // what the fake calls every stream it makes
	for _, stream := range []driver.Stream{99, 0} {
		q.Use(uintptr(stream))
		run(stream)
	}
	if err := q.Refresh(); err == nil {
		t.Error("a queue refreshed the layer")
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	if f.Left() < before {
		t.Errorf("%d allocations left, want the layer's %d", f.Left(), before)
	}
}

// Every entry of the table is chosen for some number of tokens of the first model, or is there to be compared with.
func TestTilingFor(t *testing.T) {
	for tokens, want := range map[int]int{1: 0, 64: 0, 1024: 0, 2201: 0, 2202: 1, 4403: 1, 4404: 2, 9881: 2, 9882: 3, 1 << 17: 3} {
		if got := tilingFor(Tilings[:], tokens, 10, 512); got != &Tilings[want] {
			t.Errorf("%d tokens: %v, want %v", tokens, got, Tilings[want])
		}
	}
}

func TestUnsupported(t *testing.T) {
	if _, err := backend.Open("cuda", backend.Options{}); err != nil {
		if need := (*backend.UnsupportedError)(nil); !errors.As(err, &need) || need.Need == "" || need.Have == "" {
			t.Errorf("got %v, want an UnsupportedError", err)
		}
	}
}

// What the kernels cannot count is refused before anything is sent.
func TestFits(t *testing.T) {
	s := contract.Shape{Hidden: 8, Experts: 1, TopK: 1, Width: 8}
	for _, c := range []struct {
		change func(*contract.Shape)
		want   string
	}{
		{func(s *contract.Shape) { s.Hidden, s.Width, s.SharedWidth, s.Experts = 1<<22, 1<<22, 1<<22, 2048 }, ""},
		{func(s *contract.Shape) { s.Experts = 2049 }, "2049 experts"},
		{func(s *contract.Shape) { s.Hidden = 1<<22 + 1 }, "hidden 4194305"},
		{func(s *contract.Shape) { s.Width = 1<<22 + 1 }, "width 4194305"},
		{func(s *contract.Shape) { s.SharedWidth = 1<<22 + 1 }, "shared width 4194305"},
	} {
		s := s
		c.change(&s)
		if err := fits(s); (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", s, err, c.want)
		}
	}
	l := &layer{Shape: s}
	if err := l.Route(backend.Route{Tokens: mostTokens + 1}); err == nil || !strings.Contains(err.Error(), "need at most 8388480") {
		t.Errorf("too many tokens: %v", err)
	}
}
