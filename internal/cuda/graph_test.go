// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"slices"
	"testing"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
	"github.com/samebit/samebit/internal/testgen"
)

// A graph captured at one number of tokens replays at any up to it, with other tokens and so other routes; the number is read
// on the GPU. Rows behind are left alone.
func TestGraphCounts(t *testing.T) {
	b := openGPU(t)
	for _, most := range []int{64, 600} {
		p := newPair(t, b, tinyShape, loud(tinyShape, 5), false)
		tokens, err := b.Alloc(backend.I32, 1)
		if err != nil {
			t.Fatal(err)
		}
		set := func(n int) {
			if err := b.Write(tokens, host.Bytes([]int32{int32(n)})); err != nil {
				t.Fatal(err)
			}
		}
		h := tinyShape.Hidden
		w := newWork(t, b, tinyShape, testgen.Tokens(most, h, 1), nil, false)
		p.have.tokens = i32(tokens)
		set(most)
		run := func() error { return w.run(p.have) }
		if err := run(); err != nil {
			t.Fatal(err)
		}
		g, err := b.Capture(run)
		if err != nil {
			t.Fatal(err)
		}
		before := read[contract.BF16](t, b, w.combine.Y)
		for _, n := range []int{most, 0, 1, most / 2, 7, most - 1, 33} {
			x := testgen.Tokens(most, h, uint64(n))
			if err := b.Write(w.route.X, host.Bytes(x)); err != nil {
				t.Fatal(err)
			}
			set(n)
			if err := g.Replay(); err != nil {
				t.Fatal(err)
			}
			have := read[contract.BF16](t, b, w.combine.Y)
			want := forward(t, p.cpu, p.want, tinyShape, x[:n*h], nil, false)
			if !slices.Equal(have[:n*h], want.y) || !slices.Equal(have[n*h:], before[n*h:]) {
				t.Errorf("%s: not what they are by themselves", fmt.Sprintf("%d of %d tokens", n, most))
			}
			before = have
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A thousand runs, other work in between, give one result.
func TestRepeats(t *testing.T) {
	b := openGPU(t)
	s := contract.Shape{Hidden: 256, Experts: 64, TopK: 8, Width: 96, SharedWidth: 96, NormTopK: true}
	p := newPair(t, b, s, loud(s, 5), false)
	w := newWork(t, b, s, testgen.Tokens(200, s.Hidden, 1), nil, false)
	other := newWork(t, b, s, testgen.Tokens(77, s.Hidden, 2), nil, false)
	var first []contract.BF16
	for i := range 1000 {
		if err := w.run(p.have); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			if err := other.run(p.have); err != nil {
				t.Fatal(err)
			}
		}
		y := read[contract.BF16](t, b, w.combine.Y)
		if i == 0 {
			first = y
		} else if !slices.Equal(y, first) {
			t.Fatalf("run %d differs", i)
		}
	}
}

// A small forward of each kind, for compute-sanitizer.
func TestSanitize(t *testing.T) {
	b := openGPU(t)
	p := newPair(t, b, tinyShape, loud(tinyShape, 5), false)
	for i := range Tilings {
		p.have.tiling = &Tilings[i]
		for _, n := range []int{1, 70, 300} {
			p.check("sanitize", testgen.Tokens(n, tinyShape.Hidden, 6), nil, true)
		}
	}
}
