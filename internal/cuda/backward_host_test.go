// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"strings"
	"testing"

	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
)

// Which kernels a backward takes.
func TestBackwardLaunches(t *testing.T) {
	odd := contract.Shape{Hidden: 33, Experts: 5, TopK: 2, Width: 17, SharedWidth: 16}
	for _, c := range []struct {
		shape  contract.Shape
		tokens int
		want   string
	}{
		{tinyShape, 0, ""},
		{tinyShape, 5, "backward_live_i32+ plan_one_i32+ backward_places_i32+ experts_down_bwd_1x64x1_bf16+ experts_tree_bwd_f32+ " +
			"route_norm_bwd_f32+ experts_gate_up_bwd_2x64x1_bf16+ backward_input_norm_rows_bf16+"},
		{tinyShape, 300, "backward_live_i32+ plan_count_i32+ plan_lay_i32+ plan_place_i32+ backward_places_i32+ " +
			"experts_down_bwd_2x128x1_bf16+ experts_tree_bwd_f32+ route_norm_bwd_f32+ experts_gate_up_bwd_2x128x1_bf16+ backward_input_norm_rows_bf16+"},
		{tinyShape, 800, "backward_live_i32+ plan_count_i32+ plan_lay_i32+ plan_place_i32+ plan_lay_i32+ " +
			"backward_places_i32+ experts_down_bwd_2x128x1_bf16+ experts_tree_bwd_f32+ route_norm_bwd_f32+ experts_gate_up_bwd_2x176x2_bf16+ " +
			"backward_input_norm_rows_bf16+"},
		{odd, 5, "backward_live_i32+ plan_one_i32+ backward_places_i32+ layer_pad_bf16+ experts_down_bwd_1x64x1_bf16+ " +
			"experts_tree_bwd_f32+ route_dense_bwd_f32+ experts_join_bf16+ experts_gate_up_bwd_2x64x1_bf16+ backward_input_dense_any_bf16+"},
	} {
		b, fake := fakeBackend(t)
		l := loadFake(t, b, c.shape)
		f := newWork(t, b, c.shape, testgen.Tokens(c.tokens, c.shape.Hidden, 1), nil, true)
		v := newBackwardWork(t, b, c.shape, f, testgen.Upstream(c.tokens, c.shape.Hidden, 1))
		if err := f.run(l); err != nil {
			t.Fatal(err)
		}
		fake.Launches = nil
		if err := v.run(l); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(fake.Launches, " "); got != c.want {
			t.Errorf("%+v, %d tokens: got %s, want %s", c.shape, c.tokens, got, c.want)
		}
	}
}

// A plan is for the products of the forward, or for those of the backward, whose tiles are others'.
func TestPlanKind(t *testing.T) {
	b, fake := fakeBackend(t)
	l := loadFake(t, b, tinyShape)
	const tokens = 5
	f := newWork(t, b, tinyShape, testgen.Tokens(tokens, tinyShape.Hidden, 1), nil, true)
	v := newBackwardWork(t, b, tinyShape, f, testgen.Upstream(tokens, tinyShape.Hidden, 1))
	for _, backward := range []bool{false, true} {
		f.plan.Backward = backward
		v.experts.Rows, v.rows.Rows = f.plan.Rows, f.plan.Rows
		if err := l.Plan(f.plan); err != nil {
			t.Fatal(err)
		}
		fake.Launches = nil
		for name, c := range map[string]struct {
			backward bool
			err      error
		}{
			"GateUp": {false, l.GateUp(f.gateUp)}, "Down": {false, l.Down(f.down)},
			"ExpertsBackward": {true, l.ExpertsBackward(v.experts)}, "RowsBackward": {true, l.RowsBackward(v.rows)},
		} {
			if ok := c.err == nil; ok != (c.backward == backward) {
				t.Errorf("%s on a plan for backward %v: %v", name, backward, c.err)
			}
		}
		for _, kernel := range fake.Launches {
			if strings.Contains(kernel, "_fwd_") == backward {
				t.Errorf("a plan for backward %v: launched %s", backward, kernel)
			}
		}
	}
}

// A plan that failed is none, also where one before it did not.
func TestFailedPlan(t *testing.T) {
	b, fake := fakeBackend(t)
	l := loadFake(t, b, tinyShape)
	f := newWork(t, b, tinyShape, testgen.Tokens(5, tinyShape.Hidden, 1), nil, false)
	defer f.free(b)
	if err := f.run(l); err != nil {
		t.Fatal(err)
	}
	fake.Failing = "cuLaunchKernelEx"
	if err := l.Plan(f.plan); err == nil {
		t.Fatal("no error where nothing can be launched")
	}
	fake.Failing = ""
	if err := l.GateUp(f.gateUp); err == nil || !strings.Contains(err.Error(), "rows without tiles") {
		t.Errorf("gate and up after it: %v", err)
	}
	if err := f.run(l); err != nil {
		t.Errorf("planned again: %v", err)
	}
}

// A kernel that was not launched is none that another may come early after.
func TestFailedLaunch(t *testing.T) {
	b, fake := fakeBackend(t)
	l := loadFake(t, b, tinyShape)
	f := newWork(t, b, tinyShape, testgen.Tokens(5, tinyShape.Hidden, 1), nil, false)
	defer f.free(b)
	if err := f.run(l); err != nil {
		t.Fatal(err)
	}
	fake.Failing = "cuLaunchKernelEx"
	if err := l.GateUp(f.gateUp); err == nil {
		t.Fatal("no error where nothing can be launched")
	}
	fake.Failing, fake.Launches = "", nil
	if err := l.Down(f.down); err != nil || fake.Launches[0] != "experts_down_fwd_1x64x1_bf16" {
		t.Errorf("down after gate and up that failed: %v, %v", err, fake.Launches)
	}
}

// Every entry of the table is chosen for some number of tokens of the first model.
func TestBackwardTilingFor(t *testing.T) {
	for tokens, want := range map[int]int{1: 0, 64: 0, 1024: 0, 2201: 0, 2202: 1, 4096: 1, 9881: 1, 9882: 2, 1 << 17: 2} {
		if got := tilingFor(BackwardTilings[:], tokens, 10, 512); got != &BackwardTilings[want] {
			t.Errorf("%d tokens: %v, want %v", tokens, got, BackwardTilings[want])
		}
	}
}
