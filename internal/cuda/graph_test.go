// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"slices"
	"testing"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
	"github.com/samebit/samebit/internal/testgen"
)

// replayCounts captures a graph of run at most tokens, and replays it at that and at fewer: feed writes other tokens, of which so many count,
// and says what they make by themselves. The number is read on the GPU; rows of out behind are left alone.
func replayCounts(t *testing.T, b *Backend, l *layer, most int, run func() error, out backend.Buffer, feed func(n int) []contract.BF16) {
	t.Helper()
	tokens, err := b.Alloc(backend.I32, 1)
	if err != nil {
		t.Fatal(err)
	}
	set := func(n int) {
		if err := b.Write(tokens, host.Bytes([]int32{int32(n)})); err != nil {
			t.Fatal(err)
		}
	}
	l.tokens = i32(tokens)
	set(most)
	if err := run(); err != nil {
		t.Fatal(err)
	}
	g, err := b.Capture(run)
	if err != nil {
		t.Fatal(err)
	}
	before := read[contract.BF16](t, b, out)
	for _, n := range []int{most, 0, 1, most / 2, 7, most - 1, 33} {
		want := feed(n)
		set(n)
		if err := g.Replay(); err != nil {
			t.Fatal(err)
		}
		have := read[contract.BF16](t, b, out)
		if rest := len(want); !slices.Equal(have[:rest], want) || !slices.Equal(have[rest:], before[rest:]) {
			t.Errorf("%d of %d tokens: not what they are by themselves", n, most)
		}
		before = have
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

func TestGraphCounts(t *testing.T) {
	b := openGPU(t)
	h := tinyShape.Hidden
	for _, most := range []int{64, 600} {
		p := newPair(t, b, tinyShape, loud(tinyShape, 5), false)
		w := newWork(t, b, tinyShape, testgen.Tokens(most, h, 1), nil, false)
		replayCounts(t, b, p.have, most, func() error { return w.run(p.have) }, w.combine.Y, func(n int) []contract.BF16 {
			x := testgen.Tokens(most, h, uint64(n))
			if err := b.Write(w.route.X, host.Bytes(x)); err != nil {
				t.Fatal(err)
			}
			return forward(t, p.cpu, p.want, tinyShape, x[:n*h], nil, false).y
		})
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
