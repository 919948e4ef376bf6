// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
	"github.com/samebit/samebit/parallel"
)

var (
	tiny, _ = testgen.Shape("tiny")
	weights = testgen.Weights(tiny, 1)

	few = []parallel.Grid{{TP: 1, EP: 1}, {TP: 1, EP: 3}, {TP: 2, EP: 1}, {TP: 3, EP: 2}}
)

func tokens(n int, s contract.Shape) (x, dy []contract.BF16) {
	return testgen.Tokens(n, s.Hidden, 2), testgen.Upstream(n, s.Hidden, 3)
}

// Every grid up to 16 ranks gives what one process gives: uneven tokens, a rank with none, experts and widths that the ranks do
// not divide, widths that are no powers of two.
func TestGrids(t *testing.T) {
	j := gridJob()
	j.check(t, upTo16()...)
	j.o.Backend, j.x, j.dy, j.calls = "ref", j.x[:30*tiny.Hidden], j.dy[:30*tiny.Hidden], [][]int{{20}, {10}}
	j.check(t, few...)
}

// Ranks that share a GPU give on every grid what one process gives on a CPU.
func TestGridsOnGPU(t *testing.T) {
	j := gridJob()
	want := j.one(t)
	j.o.Backend = "cuda"
	l, err := samebit.New(tiny, &weights, j.o)
	if need := (*backend.UnsupportedError)(nil); errors.As(err, &need) && !strings.Contains(os.Getenv("SAMEBIT_REQUIRE"), "cuda") {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	j.hold(t, want, upTo16()...)
	j.bf16 = true
	j.check(t, few...)
}

func gridJob() job {
	x, dy := tokens(90, tiny)
	clear(dy[5*tiny.Hidden : 8*tiny.Hidden])
	return job{shape: tiny, w: &weights, x: x, dy: dy, calls: [][]int{{40}, {1}, {0}, {49}}}
}

func upTo16() (grids []parallel.Grid) {
	for _, tp := range []int{1, 2, 3, 4, 8, 16} {
		for _, ep := range []int{1, 2, 4, 5, 8, 16} {
			if tp*ep <= 16 {
				grids = append(grids, parallel.Grid{TP: tp, EP: ep})
			}
		}
	}
	return grids
}

// Shapes that are not like the models': no shared expert, one expert, a width of one, all experts selected.
func TestShapes(t *testing.T) {
	for _, s := range []contract.Shape{
		{Hidden: 33, Experts: 24, TopK: 10, Width: 17, SharedWidth: 7, NormTopK: false},
		{Hidden: 48, Experts: 16, TopK: 2, Width: 16, NormTopK: false},
		{Hidden: 16, Experts: 3, TopK: 3, Width: 9, SharedWidth: 3, NormTopK: true},
		{Hidden: 40, Experts: 5, TopK: 1, Width: 37, NormTopK: true},
		{Hidden: 10, Experts: 5, TopK: 2, Width: 9, SharedWidth: 9, NormTopK: true},
	} {
		w := testgen.Weights(s, 4)
		x, dy := tokens(40, s)
		j := job{shape: s, w: &w, x: x, dy: dy, calls: [][]int{{40}}}
		j.check(t, few...)
		if s.Width == 9 && s.Hidden == 10 { // five blocks for eight ranks: some have nothing of an expert
			j.check(t, parallel.Grid{TP: 8, EP: 1}, parallel.Grid{TP: 8, EP: 2})
		}
	}
}

// The options that change what is computed, and those that do not.
func TestOptions(t *testing.T) {
	x, dy := tokens(50, tiny)
	j := job{shape: tiny, w: &weights, x: x, dy: dy, calls: [][]int{{50}}}

	bf16 := j
	bf16.o.RouterLogits = samebit.BF16Logits
	bf16.check(t, few...)

	dense, no := j, false
	dense.shape.NormTopK, dense.o.NormTopK = false, &no
	dense.check(t, few...)

	recomputed := j
	recomputed.o.Recompute, recomputed.o.MaxTokens = true, 13
	recomputed.check(t, few...)

	rounded := j
	rounded.bf16, rounded.calls = true, [][]int{{20}, {30}}
	rounded.check(t, few...)

	anew := j
	anew.anew, anew.calls = 1, [][]int{{20}, {20}, {10}}
	anew.check(t, few...)

	inference := j
	inference.dy = nil
	inference.check(t, few...)

	// A stream that is worked on in chunks: of a token a column, of more, of more than there are.
	for _, most := range []int{1, 3, 7, 1000} {
		chunked := j
		chunked.o.MaxTokens, chunked.calls = most, [][]int{{29}, {21}}
		chunked.check(t, few...)
	}
}

// Replayed routes, also with padding; rejected tokens. No other token notices, on whatever rank it is.
func TestTokens(t *testing.T) {
	const n = 40
	x, dy := tokens(n, tiny)
	j := job{shape: tiny, w: &weights, x: x, dy: dy, calls: [][]int{{n}}}

	replayed := j
	for i := range n {
		for k := range tiny.TopK {
			id := int32((i*5 + k*3) % tiny.Experts)
			if i%7 == 2 {
				id = -1
			}
			replayed.replay = append(replayed.replay, id)
		}
	}
	replayed.check(t, few...)

	// Every token to the experts of one rank.
	replayed.replay = slices.Repeat([]int32{15, 14, 12, 13}, n)
	replayed.check(t, few...)

	rejected := j
	rejected.x = slices.Clone(x)
	rejected.x[3*tiny.Hidden+5], rejected.x[17*tiny.Hidden], rejected.x[39*tiny.Hidden+1] = 0x7FC0, 0x7F80, 0xFF80
	rejected.check(t, few...)
}

// Contributions of 1e20, 1, -1e20 and 1 to one token, from experts on 1, 2 and 4 ranks: a sum in another order has another value.
func TestCancelling(t *testing.T) {
	s := contract.Shape{Hidden: 16, Experts: 4, TopK: 4, Width: 16, NormTopK: true}
	w := testgen.Weights(s, 5)
	clear(w.Router)
	scale := func(m []contract.BF16, by float32) []contract.BF16 {
		out := slices.Clone(m)
		for i, v := range m {
			out[i] = contract.Round(v.Float32() * by)
		}
		return out
	}
	large := w.Experts[0]
	large.Down = scale(large.Down, 1e20)
	w.Experts[0] = large
	large.Down = scale(large.Down, -1)
	w.Experts[2] = large
	x, dy := tokens(24, s)
	j := job{shape: s, w: &w, x: x, dy: dy, calls: [][]int{{24}}}
	j.check(t, parallel.Grid{TP: 1, EP: 1}, parallel.Grid{TP: 1, EP: 2}, parallel.Grid{TP: 1, EP: 4},
		parallel.Grid{TP: 2, EP: 1}, parallel.Grid{TP: 4, EP: 1}, parallel.Grid{TP: 2, EP: 2})

	// The case shows something: in another order the sums differ.
	back := j
	back.replay = slices.Repeat([]int32{3, 1, 2, 0}, 24)
	if a, b := j.one(t), back.one(t); slices.Equal(a.y, b.y) {
		t.Error("sums in another order are equal: this test's inputs show nothing")
	}
}

// After an optimizer's step each rank has changed its own part of the weights, in place, and Refresh brings the others' slices: the
// whole weights are given, or the part alone.
func TestRefresh(t *testing.T) {
	const n = 20
	x, dy := tokens(n, tiny)
	stepped := testgen.Weights(tiny, 9)
	want := job{shape: tiny, w: &stepped, x: x, dy: dy, calls: [][]int{{n}}}.one(t)
	grid := parallel.Grid{TP: 3, EP: 2}
	whole := tiny.NewGradients()
	for _, partAlone := range []bool{false, true} {
		var mu sync.Mutex
		errs := onRanks(parallel.Local(grid.Ranks()), func(i int, g parallel.Group) error {
			rank, err := parallel.Join(g, grid)
			if err != nil {
				return err
			}
			part := rank.Part(tiny)
			given := testgen.Weights(tiny, 1)
			own := &given
			if partAlone {
				own = copied(parallel.CutWeights(&given, part), part)
			}
			l, err := samebit.New(tiny, own, samebit.Options{Ranks: rank})
			if err != nil {
				return err
			}
			defer l.Close()
			step(own, parallel.CutWeights(&stepped, part), part, partAlone)
			if err := l.Refresh(); err != nil {
				return err
			}
			var r result
			if err := (job{shape: tiny, w: own, x: x, dy: dy, calls: [][]int{{n / 2, n / 2}}}).run(l, &r, func(sizes []int) (int, int) {
				_, ep := grid.At(i)
				return total(sizes[:ep]), total(sizes[:ep+1])
			}); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			_, ep := grid.At(i)
			half := n / 2 * tiny.Hidden
			same(t, "y", r.y, want.y[ep*half:(ep+1)*half])
			same(t, "dx", r.dx, want.dx[ep*half:(ep+1)*half])
			place(t, grid, whole, r.grads, part, true)
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for e := range whole.Experts {
			sameExpert(t, fmt.Sprintf("part alone %t: expert %d", partAlone, e), &whole.Experts[e], &want.grads.Experts[e])
		}
	}
}

// copied is weights of a part in memory of their own.
func copied(w *contract.Weights, p contract.Part) *contract.Weights {
	c := p.NewWeights()
	copy(c.Router, w.Router)
	copy(c.SharedGate, w.SharedGate)
	for e := range w.Experts {
		copyExpert(&c.Experts[e], &w.Experts[e])
	}
	copyExpert(c.Shared, w.Shared)
	return c
}

func copyExpert(dst, src *contract.Expert) {
	copy(dst.Gate, src.Gate)
	copy(dst.Up, src.Up)
	copy(dst.Down, src.Down)
}

// step sets a part of weights, which are whole or that part alone.
func step(w, to *contract.Weights, p contract.Part, partAlone bool) {
	set := func(w, to *contract.Expert, width int, r contract.Range) {
		if partAlone {
			copyExpert(w, to)
			return
		}
		copy(w.Gate[r.From*p.Shape.Hidden:], to.Gate)
		copy(w.Up[r.From*p.Shape.Hidden:], to.Up)
		for h := range p.Shape.Hidden {
			copy(w.Down[h*width+r.From:h*width+r.To], to.Down[h*r.Len():])
		}
	}
	copy(w.Router, to.Router)
	copy(w.SharedGate, to.SharedGate)
	for e := p.Experts.From; e < p.Experts.To; e++ {
		set(&w.Experts[e], &to.Experts[e], p.Shape.Width, p.Width)
	}
	set(w.Shared, to.Shared, p.Shape.SharedWidth, p.Shared)
}
