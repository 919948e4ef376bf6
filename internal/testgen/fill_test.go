// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package testgen

import (
	"math"
	"slices"
	"testing"

	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/contract"
)

// Values worked out in Python from the package comment.
func TestFillIsWhatItsCommentSays(t *testing.T) {
	for _, c := range []struct {
		seed, stream  uint64
		offset, scale int
		want          []contract.BF16
	}{
		{0, 0, 0, 7, []contract.BF16{0x3F4E, 0xBEAC, 0xBF8F, 0x3D20, 0x4006, 0xBF4A}},
		{1, 0, 0, 7, []contract.BF16{0xBEC0, 0xBFA0, 0x3E84, 0xBEA8, 0xBE94, 0xBF9E}},
		{0, 1, 0, 13, []contract.BF16{0xBD02, 0xBB78, 0xBC0A, 0xBCFC, 0x3CC3, 0x3B18}},
		{42, 3<<32 | 4<<24 | 511, 1<<29 | 1, 13, []contract.BF16{0xBCA4, 0xBCC9, 0x3CE5, 0x3CD7, 0xBC00, 0x3C81}},
		{1<<64 - 1, 1<<64 - 1, 7, 0, []contract.BF16{0xC170, 0x41E0, 0x42BE, 0x4110, 0x430A, 0xC32A}},
	} {
		got := make([]contract.BF16, len(c.want))
		FillAt(got, c.offset, c.seed, c.stream, c.scale)
		if !slices.Equal(got, c.want) {
			t.Errorf("seed %d, stream %d, from %d: got %04X, want %04X", c.seed, c.stream, c.offset, got, c.want)
		}
	}
}

// A part that is made by itself is what it is in the whole, also where the whole was made by many goroutines.
func TestFillAt(t *testing.T) {
	whole := make([]contract.BF16, 1<<18+5)
	Fill(whole, 3, 4, 13)
	for _, begin := range []int{0, 1, 2, 7, 1<<15 - 1, 1<<17 + 1, len(whole) - 1, len(whole)} {
		for _, n := range []int{0, 1, 2, 3, 1000, 1<<16 + 3} {
			part := make([]contract.BF16, min(n, len(whole)-begin))
			FillAt(part, begin, 3, 4, 13)
			if !slices.Equal(part, whole[begin:begin+len(part)]) {
				t.Errorf("from %d, %d values: not those of the whole", begin, len(part))
			}
		}
	}
}

func TestBell(t *testing.T) {
	values := Tokens(1<<10, 1<<10, 9)
	var sum, squares float64
	for _, v := range values {
		f := float64(v.Float32())
		sum, squares = sum+f, squares+f*f
	}
	n := float64(len(values))
	mean, deviation := sum/n, math.Sqrt(squares/n)
	if math.Abs(mean) > 0.01 || math.Abs(deviation-1.1547) > 0.01 {
		t.Errorf("got mean %v and deviation %v, want 0 and 1.1547", mean, deviation)
	}
	if slices.Equal(values, Upstream(1<<10, 1<<10, 9)) {
		t.Error("tokens and upstream gradients are the same")
	}
}

// No two parts of any layer share a stream, nor with tokens.
func TestStreams(t *testing.T) {
	seen := map[uint64]bool{tokenRole << 24: true, upstreamRole << 24: true}
	for l := range 3 {
		for _, e := range layout.Entries(l, Shapes[0].Shape) {
			for _, p := range e.Parts {
				if s := Stream(l, p); seen[s] {
					t.Errorf("layer %d, %+v: stream %#x is taken", l, p, s)
				} else {
					seen[s] = true
				}
			}
		}
	}
	for p, want := range map[checkpoint.Part]uint64{
		{Role: checkpoint.Router}:             2<<32 | 1<<24,
		{Role: checkpoint.SharedGate}:         2<<32 | 2<<24,
		{Role: checkpoint.Down, Expert: 511}:  2<<32 | 5<<24 | 511,
		{Role: checkpoint.Gate, Shared: true}: 2<<32 | 6<<24,
		{Role: checkpoint.Down, Shared: true}: 2<<32 | 8<<24,
	} {
		if got := Stream(2, p); got != want {
			t.Errorf("%+v: got %#x, want %#x", p, got, want)
		}
	}
}

func BenchmarkFill(b *testing.B) {
	values := make([]contract.BF16, 1<<24)
	b.SetBytes(2 << 24)
	for b.Loop() {
		Fill(values, 1, 2, WeightScale)
	}
}
