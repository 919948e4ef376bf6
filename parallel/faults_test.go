// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/parallel"
)

// onRanks runs do on every rank, and gives the errors.
func onRanks(groups []parallel.Group, do func(i int, g parallel.Group) error) []error {
	errs := make([]error, len(groups))
	var ranks sync.WaitGroup
	for i, g := range groups {
		ranks.Go(func() {
			defer g.Close()
			errs[i] = do(i, g)
		})
	}
	ranks.Wait()
	return errs
}

// everyRank checks that every rank has an error with one of the texts.
func everyRank(t *testing.T, what string, errs []error, texts ...string) {
	t.Helper()
	for i, err := range errs {
		if err == nil || !slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(err.Error(), s) }) {
			t.Errorf("%s: rank %d: error %v, want one with %q", what, i, err, texts)
		}
	}
}

// Whatever is not as it must be on one rank is an error on every rank, and nothing hangs.
func TestEveryRankEnds(t *testing.T) {
	x, dy := tokens(20, tiny)
	grid := parallel.Grid{TP: 2, EP: 2}
	type rank struct {
		grid  parallel.Grid
		w     *contract.Weights
		o     samebit.Options
		x, dy []contract.BF16

		options []samebit.ForwardOption
		step    func(what string, l *samebit.Layer) error // called ahead of each step
	}
	other := weights
	other.Router = slices.Clone(other.Router)
	other.Router[7] ^= 1
	broken := weights
	broken.Experts = slices.Clone(broken.Experts)
	broken.Experts[13].Up = slices.Clone(broken.Experts[13].Up)
	broken.Experts[13].Up[47*tiny.Hidden+5] = 0x7F80
	for _, c := range []struct {
		name   string
		change func(r *rank)
		texts  []string
	}{
		{"another grid", func(r *rank) { r.grid.EP = 1 }, []string{"need the same on every rank"}},
		{"a grid of another size", func(r *rank) {}, nil},
		{"other weights", func(r *rank) { r.w = &other }, []string{"need the same on every rank"}},
		{"weights that are not finite", func(r *rank) { r.w = &broken }, []string{"expert 13 up has +Inf at 6021"}},
		{"other logits", func(r *rank) { r.o.RouterLogits = samebit.BF16Logits }, []string{"need the same on every rank"}},
		{"a backend that is not there", func(r *rank) { r.o.Backend = "none" }, []string{`backend "none" is unknown`, "rank 3 has left"}},
		{"another workspace", func(r *rank) { r.o.MaxTokens = 9 }, []string{"need the same call on every rank"}},
		{"an odd x", func(r *rank) { r.x = r.x[1:] }, []string{"need a multiple of the hidden size"}},
		{"other tokens in a column", func(r *rank) { r.x = slices.Clone(r.x); r.x[3]++ }, []string{"need the same tokens"}},
		{"another count in a column", func(r *rank) { r.x = r.x[:tiny.Hidden*3] }, []string{"need the same tokens"}},
		{"no tape", func(r *rank) { r.options = nil }, []string{"need the same call on every rank"}},
		{"fewer gradients", func(r *rank) { r.dy = r.dy[tiny.Hidden:] }, []string{"dy has 19 tokens: need 20"}},
		{"other replayed ids", func(r *rank) { r.options = append(r.options, samebit.Replay(make([]int32, 80))) }, []string{"twice"}},
		{"a rank that leaves ahead of the forward", func(r *rank) {
			r.step = func(what string, _ *samebit.Layer) error {
				if what == "forward" {
					return errors.New("has left")
				}
				return nil
			}
		}, []string{"has left"}},
		{"a rank that leaves ahead of the flush", func(r *rank) {
			r.step = func(what string, _ *samebit.Layer) error {
				if what == "flush" {
					return errors.New("has left")
				}
				return nil
			}
		}, []string{"has left"}},
		{"a layer that is closed", func(r *rank) {
			r.step = func(what string, l *samebit.Layer) error {
				if what == "backward" {
					l.Close()
				}
				return nil
			}
		}, []string{"the layer is closed", "has left"}},
	} {
		if c.texts == nil {
			errs := onRanks(parallel.Local(3), func(_ int, g parallel.Group) error {
				_, err := parallel.Join(g, grid)
				return err
			})
			everyRank(t, c.name, errs, "found 3 ranks: need 4")
			continue
		}
		start := time.Now()
		errs := onRanks(parallel.Local(4), func(i int, g parallel.Group) error {
			r := rank{grid: grid, w: &weights, x: x, dy: dy, options: []samebit.ForwardOption{samebit.Train},
				step: func(string, *samebit.Layer) error { return nil }}
			if i == 3 {
				c.change(&r)
			}
			joined, err := parallel.Join(g, r.grid)
			if err != nil {
				return err
			}
			r.o.Ranks = joined
			l, err := samebit.New(tiny, r.w, r.o)
			if err != nil {
				return err
			}
			defer l.Close()
			grads, err := l.NewGradients(nil)
			if err != nil {
				return err
			}
			if err := r.step("forward", l); err != nil {
				return err
			}
			out, err := l.Forward(r.x, r.options...)
			if err != nil {
				return err
			}
			if err := r.step("backward", l); err != nil {
				return err
			}
			if _, err := l.Backward(out.Tape, r.dy, grads); err != nil {
				return err
			}
			if err := r.step("flush", l); err != nil {
				return err
			}
			return grads.Flush()
		})
		everyRank(t, c.name, errs, c.texts...)
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("%s: the ranks ended after %v", c.name, d)
		}
	}
}

// A rank that fails in the middle of a stage ends the others, which would wait for it.
func TestAbort(t *testing.T) {
	errs := onRanks(parallel.Local(3), func(i int, g parallel.Group) error {
		if i == 1 {
			g.Abort(errors.New("out of memory"))
			g.Abort(errors.New("and again"))
		}
		for range 2 {
			if err := g.Barrier(); err == nil {
				return nil
			}
		}
		return g.Barrier()
	})
	everyRank(t, "abort", errs, "rank 1: out of memory")
}

// A rank that does not come is given up.
func TestPatience(t *testing.T) {
	done := make(chan struct{})
	errs := onRanks(parallel.LocalWith(2, 50*time.Millisecond), func(i int, g parallel.Group) error {
		if i == 1 {
			<-done
			return g.Barrier()
		}
		defer close(done)
		return g.Barrier()
	})
	everyRank(t, "a rank that does not come", errs, "rank 0: rank 1 has not called what this rank has in 50ms")
}

// Ranks that call different things are told so.
func TestDifferentCalls(t *testing.T) {
	errs := onRanks(parallel.Local(2), func(i int, g parallel.Group) error {
		if i == 1 {
			return g.Barrier()
		}
		return g.AllGather([][]byte{make([]byte, 5), make([]byte, 5)}, make([]byte, 5))
	})
	everyRank(t, "different calls", errs, "need the same calls on every rank")
}
