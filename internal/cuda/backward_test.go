// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
	"github.com/samebit/samebit/internal/testgen"
)

// upstream is a random dy; every seventh token's is all zero, of both signs.
func upstream(tokens int, s contract.Shape, seed uint64) []contract.BF16 {
	dy := testgen.Upstream(tokens, s.Hidden, seed)
	for t := 3; t < tokens; t += 7 {
		for j := range s.Hidden {
			dy[t*s.Hidden+j] = contract.BF16(j%2) << 15
		}
	}
	return dy
}

// Shapes of every kind, stage by stage.
func TestBackwardShapes(t *testing.T) {
	b := openGPU(t)
	for i, s := range []contract.Shape{
		tinyShape,
		{Hidden: 128, Experts: 16, TopK: 4, Width: 64, SharedWidth: 48, NormTopK: false},
		{Hidden: 64, Experts: 16, TopK: 1, Width: 48, NormTopK: true},
		{Hidden: 160, Experts: 8, TopK: 8, Width: 48, SharedWidth: 80, NormTopK: true},
		{Hidden: 33, Experts: 24, TopK: 10, Width: 17, SharedWidth: 7, NormTopK: false},
		{Hidden: 16, Experts: 512, TopK: 10, Width: 16, SharedWidth: 16, NormTopK: true},
		{Hidden: 8, Experts: 512, TopK: 512, Width: 3, NormTopK: false},
		{Hidden: 8, Experts: 600, TopK: 40, Width: 8, NormTopK: true},
		{Hidden: 1, Experts: 1, TopK: 1, Width: 1, SharedWidth: 1, NormTopK: true},
		{Hidden: 300, Experts: 5, TopK: 3, Width: 130, SharedWidth: 33, NormTopK: false},
		{Hidden: 1024, Experts: 32, TopK: 6, Width: 200, SharedWidth: 328, NormTopK: true},
		{Hidden: 24, Experts: 3, TopK: 2, Width: 2064, SharedWidth: 16, NormTopK: true},
	} {
		p := newPair(t, b, s, loud(s, uint64(i)), i%2 == 1)
		for _, n := range []int{0, 1, 9, 70, 300} {
			p.checkBackward(fmt.Sprintf("%+v, %d tokens", s, n), testgen.Tokens(n, s.Hidden, uint64(n)), upstream(n, s, uint64(n)), nil)
		}
	}
}

// Every count of tokens from 0 to 130, and where others switch kernels, with every tiling.
func TestBackwardCounts(t *testing.T) {
	b := openGPU(t)
	p := newPair(t, b, tinyShape, loud(tinyShape, 5), false)
	counts := []int{255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 4095, 4096, 4097}
	for n := range 131 {
		counts = append(counts, n)
	}
	h := tinyShape.Hidden
	x, dy := testgen.Tokens(4097, h, 6), upstream(4097, tinyShape, 6)
	for _, n := range counts {
		x, dy := x[:n*h], dy[:n*h]
		want := backward(t, p.cpu, p.want, p.shape, x, dy, nil)
		for i := range BackwardTilings {
			p.have.backwardTiling = &BackwardTilings[i]
			have := backward(t, b, p.have, p.shape, x, dy, nil)
			if !sameGradients(t, fmt.Sprintf("%d tokens, tiles %v", n, BackwardTilings[i]), p.shape, have, want) {
				return
			}
		}
	}
}

// Numbers over the whole range of BF16 in weights, tokens and upstream gradients.
func TestBackwardNumbers(t *testing.T) {
	b := openGPU(t)
	r := seeded(41)
	s := contract.Shape{Hidden: 96, Experts: 8, TopK: 3, Width: 80, SharedWidth: 40, NormTopK: true}
	for name, c := range map[string][3][2]int{
		"every exponent":    {{1, 253}, {1, 254}, {1, 254}},
		"tiny":              {{0, 40}, {60, 30}, {0, 40}},
		"subnormal weights": {{0, 1}, {120, 16}, {0, 2}},
		"huge":              {{127, 40}, {180, 60}, {200, 55}},
		"overflow":          {{127, 4}, {127, 4}, {248, 7}},
		"wide":              {{100, 54}, {100, 54}, {100, 54}},
		"cancelling":        {{126, 2}, {126, 1}, {126, 1}},
		"steep gates":       {{124, 8}, {124, 8}, {124, 8}},
	} {
		w := loud(s, 42)
		for e := range w.Experts {
			exponents(r, w.Experts[e].Gate, c[0])
			exponents(r, w.Experts[e].Up, c[0])
			exponents(r, w.Experts[e].Down, c[0])
		}
		p := newPair(t, b, s, w, false)
		x, dy := testgen.Tokens(150, s.Hidden, 43), upstream(150, s, 44)
		exponents(r, x, c[1])
		exponents(r, dy, c[2])
		p.checkBackward(name, x, dy, nil)
		if name == "overflow" {
			clear(w.Router) // so that tokens of infinities live where they meet no weight
			for i := range 30 {
				special := []contract.BF16{0x7F80, 0xFF80, 0x7FC1}[i%3]
				x[r.IntN(len(x))], dy[r.IntN(len(dy))] = special, special
			}
			newPair(t, b, s, w, false).checkBackward("infinities and NaN", x, dy, nil)
		}
	}
}

// Ties, extremes, tokens that are rejected or padding, replay, with both norms.
func TestBackwardRouting(t *testing.T) {
	b := openGPU(t)
	nan := contract.Round(float32(math.NaN()))
	for _, norm := range []bool{true, false} {
		for _, experts := range []int{12, 512, 600} {
			s := contract.Shape{Hidden: experts + 8, Experts: experts, TopK: 10, Width: 16, SharedWidth: 24, NormTopK: norm}
			w := loud(s, 7)
			clear(w.Router) // the logits are the token's first values
			for e := range experts {
				w.Router[e*s.Hidden+e] = 0x3F80
			}
			p := newPair(t, b, s, w, norm)
			for _, n := range []int{13, 301} {
				x, dy := testgen.Tokens(n, s.Hidden, 3), upstream(n, s, 4)
				for t, v := range []float32{0, 1.5, 1e38, -1e-40} { // all alike
					for e := range experts {
						x[t*s.Hidden+e] = contract.Round(v)
					}
				}
				x[5*s.Hidden+1], x[12*s.Hidden] = nan, 0x7F80
				r := seeded(13)
				var replay []int32
				for i := range n {
					perm := r.Perm(experts)
					for k := range s.TopK {
						if i == 0 || i == 6 || i == n-1 {
							perm[k] = -1
						}
						replay = append(replay, int32(perm[k]))
					}
				}
				what := fmt.Sprintf("%d experts, norm %t, %d tokens", experts, norm, n)
				p.checkBackward(what, x, dy, nil)
				p.checkBackward(what+", replayed", x, dy, replay)
			}
		}
	}
}

// Every token to the same experts; groups of uneven sizes; no token at all with a gradient.
func TestBackwardLoad(t *testing.T) {
	b := openGPU(t)
	s := contract.Shape{Hidden: 64, Experts: 512, TopK: 3, Width: 16, SharedWidth: 16, NormTopK: true}
	p := newPair(t, b, s, loud(s, 21), false)
	last := slices.Repeat([]int32{511, 509, 510}, 4096)
	p.checkBackward("every token to the last three", testgen.Tokens(4096, s.Hidden, 22), upstream(4096, s, 23), last)
	p.checkBackward("no gradient", testgen.Tokens(200, s.Hidden, 22), make([]contract.BF16, 200*s.Hidden), nil)

	counts := []int{162, 0, 2577, 446, 0, 83}
	uneven := contract.Shape{Hidden: 64, Experts: len(counts), TopK: 1, Width: 16}
	var ids []int32
	for e, n := range counts {
		ids = append(ids, slices.Repeat([]int32{int32(e)}, n)...)
	}
	seeded(25).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	q := newPair(t, b, uneven, loud(uneven, 27), false)
	for i := range BackwardTilings {
		q.have.backwardTiling = &BackwardTilings[i]
		q.checkBackward("uneven groups", testgen.Tokens(len(ids), uneven.Hidden, 26), upstream(len(ids), uneven, 28), ids)
	}
}

// A backward leaves the tape as it was, and gives the same whenever it runs: again, after another, over poisoned buffers.
func TestBackwardRepeats(t *testing.T) {
	b := openGPU(t)
	s := contract.Shape{Hidden: 256, Experts: 64, TopK: 8, Width: 96, SharedWidth: 96, NormTopK: true}
	p := newPair(t, b, s, loud(s, 5), false)
	f := newWork(t, b, s, testgen.Tokens(200, s.Hidden, 1), nil, true)
	w, other := newBackwardWork(t, b, s, f, upstream(200, s, 2)), newBackwardWork(t, b, s, f, upstream(200, s, 3))
	if err := errors.Join(f.run(p.have), w.run(p.have)); err != nil {
		t.Fatal(err)
	}
	first := w.read(t, b, s)
	for i := range 20 {
		w.poison(t, b)
		if err := errors.Join(other.run(p.have), w.run(p.have)); err != nil {
			t.Fatal(err)
		}
		if !sameGradients(t, fmt.Sprint("run ", i), s, w.read(t, b, s), first) {
			return
		}
	}
}

// A graph of forward and backward, captured at one number of tokens, replays at any up to it.
func TestBackwardGraph(t *testing.T) {
	b := openGPU(t)
	h := tinyShape.Hidden
	for _, most := range []int{64, 600} {
		p := newPair(t, b, tinyShape, loud(tinyShape, 5), false)
		f := newWork(t, b, tinyShape, testgen.Tokens(most, h, 1), nil, true)
		w := newBackwardWork(t, b, tinyShape, f, upstream(most, tinyShape, 1))
		run := func() error { return errors.Join(f.run(p.have), w.run(p.have)) }
		replayCounts(t, b, p.have, most, run, w.input.DX, func(n int) []contract.BF16 {
			x, dy := testgen.Tokens(most, h, uint64(n)), upstream(most, tinyShape, uint64(n))
			if err := errors.Join(b.Write(f.route.X, host.Bytes(x)), b.Write(w.plan.DY, host.Bytes(dy))); err != nil {
				t.Fatal(err)
			}
			return backward(t, p.cpu, p.want, tinyShape, x[:n*h], dy[:n*h], nil).dx
		})
	}
}

// The full shape: stage by stage with every tiling, experts behind the first 2^31 bytes among them; and the last 16 of a large batch.
func TestBackwardFullShape(t *testing.T) {
	if testing.Short() {
		t.Skip("3 GB of weights")
	}
	b := openGPU(t)
	s, w := full()
	p := newPair(t, b, s, &w, false)
	x, dy := testgen.Tokens(16384, s.Hidden, 2), upstream(16384, s, 3)
	var replay []int32
	for i := range 64 {
		for k := range s.TopK {
			replay = append(replay, int32(511-(i%2)*255-k))
		}
	}
	for i := range BackwardTilings {
		p.have.backwardTiling = &BackwardTilings[i]
		p.checkBackward(fmt.Sprintf("64 tokens, tiles %v", BackwardTilings[i]), x[:64*s.Hidden], dy[:64*s.Hidden], nil)
		p.checkBackward(fmt.Sprintf("experts 511 and 256, tiles %v", BackwardTilings[i]), x[:64*s.Hidden], dy[:64*s.Hidden], replay)
	}
	p.have.backwardTiling = nil
	for _, n := range []int{1024, 16384} {
		tail := (n - 16) * s.Hidden
		want := backward(t, p.cpu, p.want, s, x[tail:n*s.Hidden], dy[tail:n*s.Hidden], nil)
		f := newWork(t, b, s, x[:n*s.Hidden], nil, true)
		back := newBackwardWork(t, b, s, f, dy[:n*s.Hidden])
		if err := errors.Join(f.run(p.have), back.run(p.have)); err != nil {
			t.Fatal(err)
		}
		if have := read[contract.BF16](t, b, back.input.DX); !slices.Equal(have[tail:], want.dx) {
			t.Errorf("%d tokens: the last 16 are not those of a batch of 16", n)
		}
		back.free(b)
		f.free(b)
	}
}

// A small backward of each kind, for compute-sanitizer.
func TestBackwardSanitize(t *testing.T) {
	b := openGPU(t)
	odd := contract.Shape{Hidden: 33, Experts: 6, TopK: 3, Width: 17, SharedWidth: 7}
	for _, s := range []contract.Shape{tinyShape, odd} {
		p := newPair(t, b, s, loud(s, 5), false)
		for i := range BackwardTilings {
			p.have.backwardTiling = &BackwardTilings[i]
			for _, n := range []int{1, 70, 300} {
				p.checkBackward("sanitize", testgen.Tokens(n, s.Hidden, 6), upstream(n, s, 7), nil)
			}
		}
	}
}
