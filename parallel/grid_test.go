// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/bits"
	"github.com/samebit/samebit/parallel"
)

// result is what a layer gives for all tokens, whatever ranks they were on.
type result struct {
	y, dx           []contract.BF16
	logits, weights []float32
	ids             []int32
	rejected        int
	grads           *contract.Gradients
}

// job is tokens to run, in calls; each call is cut over the columns of a grid, in order.
type job struct {
	shape  contract.Shape
	w      *contract.Weights
	o      samebit.Options
	x, dy  []contract.BF16
	replay []int32
	calls  [][]int // of each call, the tokens of each column
	bf16   bool    // gradients in BF16
	live   *live   // counts what ranks use of the backend below; nil for no count
	anew   int     // ahead of this call the gradients are flushed, and the accumulators set to others
}

// one gives the result of one process, which has each call's tokens in one batch.
func (j job) one(t *testing.T) result {
	t.Helper()
	l, err := samebit.New(j.shape, j.w, j.o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var r result
	if err := j.run(l, &r, func(sizes []int) (int, int) { return 0, total(sizes) }); err != nil {
		t.Fatal(err)
	}
	return r
}

// grid gives the results of the ranks of a grid, put together, and holds those that must be alike against each other.
func (j job) grid(t *testing.T, g parallel.Grid) result {
	t.Helper()
	groups, all, errs := parallel.Local(g.Ranks()), make([]result, g.Ranks()), make([]error, g.Ranks())
	parts := make([]contract.Part, g.Ranks())
	var ranks sync.WaitGroup
	for i, group := range groups {
		ranks.Go(func() {
			defer group.Close()
			errs[i] = func() error {
				rank, err := parallel.Join(group, g)
				if err != nil {
					return err
				}
				o := j.o
				o.Ranks = rank
				if j.live != nil {
					o.Ranks = counting{rank, j.live}
				}
				l, err := samebit.New(j.shape, j.w, o)
				if err != nil {
					return err
				}
				defer l.Close()
				parts[i] = l.Part()
				_, ep := g.At(i)
				return j.run(l, &all[i], func(sizes []int) (int, int) { return total(sizes[:ep]), total(sizes[:ep+1]) })
			}()
		})
	}
	ranks.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("%v: %v", g, err)
	}
	whole := result{grads: j.shape.NewGradients()}
	offset := make([]int, len(all))
	for _, call := range j.calls {
		for ep := range g.EP {
			first := ep * g.TP
			at, n := offset[ep], call[ep]
			offset[ep] += n
			h, k, e := j.shape.Hidden, j.shape.TopK, j.shape.Experts
			r := all[first]
			whole.y, whole.logits = append(whole.y, r.y[at*h:(at+n)*h]...), append(whole.logits, r.logits[at*e:(at+n)*e]...)
			whole.ids, whole.weights = append(whole.ids, r.ids[at*k:(at+n)*k]...), append(whole.weights, r.weights[at*k:(at+n)*k]...)
			if r.dx != nil {
				whole.dx = append(whole.dx, r.dx[at*h:(at+n)*h]...)
			}
		}
	}
	for i, r := range all {
		if tp, ep := g.At(i); tp > 0 {
			column := all[ep*g.TP]
			same(t, fmt.Sprintf("%v: y of rank %d and its column", g, i), r.y, column.y)
			same(t, fmt.Sprintf("%v: dx of rank %d and its column", g, i), r.dx, column.dx)
		} else {
			whole.rejected += r.rejected
		}
		if r.grads != nil {
			place(t, g, whole.grads, r.grads, parts[i], i == 0)
		}
	}
	return whole
}

// place puts a rank's gradients to their places in those of the whole layer; what other ranks have too must be the same.
func place(t *testing.T, g parallel.Grid, whole, part *contract.Gradients, p contract.Part, first bool) {
	t.Helper()
	if first {
		copy(whole.Router, part.Router)
		copy(whole.SharedGate, part.SharedGate)
	}
	same(t, fmt.Sprintf("%v: router gradient", g), part.Router, whole.Router)
	same(t, fmt.Sprintf("%v: shared gate gradient", g), part.SharedGate, whole.SharedGate)
	for e := p.Experts.From; e < p.Experts.To; e++ {
		placeExpert(&whole.Experts[e], &part.Experts[e], p.Shape.Hidden, p.Shape.Width, p.Width)
	}
	if whole.Shared != nil {
		placeExpert(whole.Shared, part.Shared, p.Shape.Hidden, p.Shape.SharedWidth, p.Shared)
	}
}

func placeExpert(whole, part *contract.ExpertGradient, hidden, width int, r contract.Range) {
	copy(whole.Gate[r.From*hidden:], part.Gate)
	copy(whole.Up[r.From*hidden:], part.Up)
	for h := range hidden {
		copy(whole.Down[h*width+r.From:h*width+r.To], part.Down[h*r.Len():])
	}
}

// run runs the calls on a layer, whose tokens of each call mine says.
func (j job) run(l *samebit.Layer, r *result, mine func(sizes []int) (from, to int)) error {
	newGradients := func() (*samebit.Gradients, error) { return l.NewGradients(nil) }
	if j.bf16 {
		newGradients = func() (*samebit.Gradients, error) { return l.NewBF16Gradients(nil) }
	}
	g, err := newGradients()
	if err != nil {
		return err
	}
	defer g.Close()
	h, k, at := j.shape.Hidden, j.shape.TopK, 0
	for c, sizes := range j.calls {
		if c > 0 && c == j.anew {
			if err := g.Flush(); err != nil {
				return err
			}
			setAll(g.FP32(), 0.5)
		}
		from, to := mine(sizes)
		from, to = at+from, at+to
		at += total(sizes)
		var options []samebit.ForwardOption
		if j.dy != nil {
			options = append(options, samebit.Train)
		}
		if j.replay != nil {
			options = append(options, samebit.Replay(j.replay[from*k:to*k]))
		}
		out, err := l.Forward(j.x[from*h:to*h], options...)
		if rejected := (*samebit.RejectedError)(nil); err != nil && !errors.As(err, &rejected) {
			return err
		}
		defer out.Tape.Free()
		r.y, r.logits = append(r.y, out.Y...), append(r.logits, out.Logits...)
		r.ids, r.weights, r.rejected = append(r.ids, out.IDs...), append(r.weights, out.Weights...), r.rejected+out.Rejected.Tokens
		if j.dy == nil {
			continue
		}
		dx, err := l.Backward(out.Tape, j.dy[from*h:to*h], g)
		if err != nil {
			return err
		}
		r.dx = append(r.dx, dx...)
	}
	if j.dy == nil {
		return nil
	}
	if err := g.Flush(); err != nil {
		return err
	}
	if r.grads = g.FP32(); j.bf16 {
		r.grads = widened(g.BF16(), l.Part())
	}
	return nil
}

// setAll sets all accumulators, as a trainer does between steps.
func setAll(g *contract.Gradients, to float32) {
	for _, x := range append(slices.Clone(g.Experts), *g.Shared, contract.ExpertGradient{Gate: g.Router, Up: g.SharedGate}) {
		for _, m := range [][]float32{x.Gate, x.Up, x.Down} {
			for i := range m {
				m[i] = to
			}
		}
	}
}

// widened is BF16 gradients as FP32 ones.
func widened(w *contract.Weights, p contract.Part) *contract.Gradients {
	g := p.NewGradients()
	wide := func(dst []float32, src []contract.BF16) {
		for i, v := range src {
			dst[i] = v.Float32()
		}
	}
	wide(g.Router, w.Router)
	wide(g.SharedGate, w.SharedGate)
	for e := range w.Experts {
		wide(g.Experts[e].Gate, w.Experts[e].Gate)
		wide(g.Experts[e].Up, w.Experts[e].Up)
		wide(g.Experts[e].Down, w.Experts[e].Down)
	}
	if w.Shared != nil {
		wide(g.Shared.Gate, w.Shared.Gate)
		wide(g.Shared.Up, w.Shared.Up)
		wide(g.Shared.Down, w.Shared.Down)
	}
	return g
}

// check holds grids against one process.
func (j job) check(t *testing.T, grids ...parallel.Grid) {
	t.Helper()
	j.hold(t, j.one(t), grids...)
}

// hold holds grids against what one process gave.
func (j job) hold(t *testing.T, want result, grids ...parallel.Grid) {
	t.Helper()
	for _, g := range grids {
		j.calls = spreadCalls(j.calls, g.EP)
		have := j.grid(t, g)
		what := func(name string) string { return fmt.Sprintf("%v, calls %v: %s", g, j.calls, name) }
		same(t, what("y"), have.y, want.y)
		same(t, what("logits"), have.logits, want.logits)
		same(t, what("ids"), have.ids, want.ids)
		same(t, what("weights"), have.weights, want.weights)
		same(t, what("dx"), have.dx, want.dx)
		if have.rejected != want.rejected {
			t.Errorf("%s: %d, want %d", what("rejected tokens"), have.rejected, want.rejected)
		}
		if want.grads == nil {
			continue
		}
		same(t, what("router gradient"), have.grads.Router, want.grads.Router)
		same(t, what("shared gate gradient"), have.grads.SharedGate, want.grads.SharedGate)
		for e := range want.grads.Experts {
			sameExpert(t, what(fmt.Sprintf("expert %d", e)), &have.grads.Experts[e], &want.grads.Experts[e])
		}
		if want.grads.Shared != nil {
			sameExpert(t, what("shared expert"), have.grads.Shared, want.grads.Shared)
		}
	}
}

func sameExpert(t *testing.T, what string, have, want *contract.ExpertGradient) {
	t.Helper()
	same(t, what+" gate", have.Gate, want.Gate)
	same(t, what+" up", have.Up, want.Up)
	same(t, what+" down", have.Down, want.Down)
}

// spreadCalls cuts the tokens of each call anew, unevenly, for so many columns: some have none.
func spreadCalls(calls [][]int, columns int) [][]int {
	var out [][]int
	for c, sizes := range calls {
		n := total(sizes)
		cut := make([]int, columns)
		for i := range columns {
			if i == (c+1)%max(columns, 2) {
				continue // a rank with none
			}
			cut[i] = min(n, 1+(total(sizes)*(1+i%3))/(columns+1))
			n -= cut[i]
		}
		cut[columns-1] += n
		out = append(out, cut)
	}
	return out
}

func total(sizes []int) (n int) {
	for _, s := range sizes {
		n += s
	}
	return n
}

// same compares bit for bit, and says where.
func same[T safetensors.Element](t *testing.T, what string, have, want []T) {
	t.Helper()
	d := bits.Compare(bits.Of(what, []int{len(have)}, have), bits.Of(what, []int{len(want)}, want), bits.AllowNonFinite)
	if !d.Same() {
		t.Errorf("%s: %+v", what, d)
	}
}
