// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
	"github.com/samebit/samebit/parallel"
)

// member is one rank's layer in a test of what ranks must have alike.
type member struct {
	*samebit.Layer
	odd   bool // of the ranks the last one, which differs
	x, dy []contract.BF16
}

// given is what a rank's layer is made of.
type given struct {
	w contract.Weights
	o samebit.Options
	r *parallel.Rank
}

var square = parallel.Grid{TP: 2, EP: 2}

// onSquare has four ranks make a layer and use it. change changes what the odd one is given.
func onSquare(change func(g *given), use func(m *member) error) []error {
	x, dy := tokens(6, tiny)
	return onRanks(parallel.Local(4), func(i int, group parallel.Group) error {
		rank, err := parallel.Join(group, square)
		if err != nil {
			return err
		}
		g := given{testgen.Weights(tiny, 1), samebit.Options{Ranks: rank}, rank}
		if i == 3 && change != nil {
			change(&g)
		}
		l, err := samebit.New(tiny, &g.w, g.o)
		if err != nil {
			return err
		}
		defer l.Close()
		return use(&member{l, i == 3, x, dy})
	})
}

// step is a forward and its backward.
func (m *member) step(g *samebit.Gradients, o ...samebit.ForwardOption) error {
	out, err := m.Forward(m.x, append(o, samebit.Train)...)
	if err != nil {
		return err
	}
	_, err = m.Backward(out.Tape, m.dy, g)
	return err
}

// What ranks need alike of their weights and options is compared when a layer is made: else a fold over the tokens of all would have
// parts of two kinds.
func TestGivenAlike(t *testing.T) {
	for name, c := range map[string]struct {
		change func(g *given)
		text   string
	}{
		"the shared gate":          {func(g *given) { g.w.SharedGate[7] ^= 1 }, "need the same on every rank"},
		"the shared expert's gate": {func(g *given) { g.w.Shared.Gate[len(g.w.Shared.Gate)-1] ^= 1 }, "load: of the shared expert rank 1 has"},
		"the shared expert's up":   {func(g *given) { g.w.Shared.Up[len(g.w.Shared.Up)-1] ^= 1 }, "load: of the shared expert rank 1 has"},
		"the shared expert's down": {func(g *given) { g.w.Shared.Down[tiny.SharedWidth-1] ^= 1 }, "load: of the shared expert rank 1 has"},
		"a refusing backend":       {func(g *given) { g.o.Ranks = refusing{g.r} }, "no memory for weights"},
		"Recompute":                {func(g *given) { g.o.Recompute = true }, "forward: rank 0 was asked for"},
	} {
		everyRank(t, name, onSquare(c.change, func(m *member) error { return m.step(nil) }), c.text)
	}
	// Of the shared expert a rank's own share counts, no more.
	if err := errors.Join(onSquare(func(g *given) { g.w.Shared.Down[0] ^= 1 }, func(m *member) error { return m.step(nil) })...); err != nil {
		t.Errorf("a bit of another rank's share: %v", err)
	}
}

// refusing spreads a backend that takes no weights.
type refusing struct{ *parallel.Rank }

func (r refusing) Spread(b backend.Backend) backend.Backend { return r.Rank.Spread(refusingBackend{b}) }

type refusingBackend struct{ backend.Backend }

func (refusingBackend) Load(backend.Spec) (backend.Layer, error) {
	return nil, errors.New("no memory for weights")
}

// Weights that have changed on one rank alone are refused.
func TestRefreshedAlike(t *testing.T) {
	for name, change := range map[string]func(w *contract.Weights){
		"the router":        func(w *contract.Weights) { w.Router[3] ^= 1 },
		"the shared gate":   func(w *contract.Weights) { w.SharedGate[3] ^= 1 },
		"the shared expert": func(w *contract.Weights) { w.Shared.Down[tiny.SharedWidth-1] ^= 1 },
	} {
		var mine *contract.Weights
		errs := onSquare(func(g *given) { mine = &g.w }, func(m *member) error {
			if m.odd {
				change(mine)
			}
			if err := m.Refresh(); err != nil {
				return err
			}
			return m.step(nil)
		})
		everyRank(t, name, errs, "refresh: ")
	}
}

// Ranks that call the same methods with other things of their own are told so.
func TestCalledAlike(t *testing.T) {
	ids := func(first int32) []int32 { return slices.Repeat([]int32{first, first + 1, first + 2, first + 3}, 6) }
	gradients := func(m *member) *samebit.Gradients {
		g, err := m.NewGradients(nil)
		if err != nil {
			panic(err)
		}
		return g
	}
	for name, c := range map[string]struct {
		text string
		use  func(m *member) error
	}{
		"other ids": {"need the same ids", func(m *member) error {
			if m.odd {
				return m.step(nil, samebit.Replay(ids(4)))
			}
			return m.step(nil, samebit.Replay(ids(0)))
		}},
		"ids on one": {"need the same call on every rank", func(m *member) error {
			if m.odd {
				return m.step(nil, samebit.Replay(ids(4)))
			}
			return m.step(nil)
		}},
		"ids on all but one": {"need the same call on every rank", func(m *member) error {
			if m.odd {
				return m.step(nil)
			}
			return m.step(nil, samebit.Replay(ids(4)))
		}},
		"no gradients": {"backward: rank 0 was asked for", func(m *member) error {
			g := gradients(m)
			if m.odd {
				g = nil
			}
			return m.step(g)
		}},
		"gradients of another kind": {"backward: rank 0 was asked for", func(m *member) error {
			if !m.odd {
				return m.step(gradients(m))
			}
			g, err := m.NewBF16Gradients(nil)
			return errors.Join(err, m.step(g))
		}},
		"other gradients": {"backward: rank 0 was asked for", func(m *member) error {
			a, b := gradients(m), gradients(m)
			if m.odd {
				a, b = b, a
			}
			return errors.Join(m.step(a), m.step(b))
		}},
		"other gradients flushed": {"flush: rank 0 has", func(m *member) error {
			a, b := gradients(m), gradients(m)
			if m.odd {
				a, b = b, a
			}
			return errors.Join(a.Flush(), b.Flush())
		}},
		"another tape": {"backward: rank 0 was asked for", func(m *member) error {
			var tapes []*samebit.Tape
			for range 2 {
				out, err := m.Forward(m.x, samebit.Train)
				if err != nil {
					return err
				}
				tapes = append(tapes, out.Tape)
			}
			if m.odd {
				slices.Reverse(tapes)
			}
			_, err := m.Backward(tapes[0], m.dy, nil)
			return err
		}},
		"another call": {"need the same calls in the same order on every rank", func(m *member) error {
			g := gradients(m)
			if m.odd {
				return g.Flush()
			}
			return m.step(g)
		}},
		"another router accumulator":        {"gradients: rank 0 has", accumulated(func(g *contract.Gradients) { g.Router[0] = 1 })},
		"another shared gate's accumulator": {"gradients: rank 0 has", accumulated(func(g *contract.Gradients) { g.SharedGate[0] = 1 })},
		"another shared expert's accumulator": {"gradients: of the shared expert rank 1 has",
			accumulated(func(g *contract.Gradients) { g.Shared.Down[0] = 1 })},
	} {
		everyRank(t, name, onSquare(nil, c.use), c.text)
	}
	if err := errors.Join(onSquare(nil, accumulated(func(g *contract.Gradients) { g.Experts[15].Down[0] = 1 }))...); err != nil {
		t.Errorf("another accumulator of an expert of one's own: %v", err)
	}
}

// accumulated adds to accumulators that are others on the odd rank.
func accumulated(change func(g *contract.Gradients)) func(m *member) error {
	return func(m *member) error {
		into := m.Part().NewGradients()
		if m.odd {
			change(into)
		}
		g, err := m.NewGradients(into)
		if err != nil {
			return err
		}
		return errors.Join(m.step(g), g.Flush())
	}
}

// A flush of nothing leaves the accumulators as they are, and compares none.
func TestFlushOfNothing(t *testing.T) {
	errs := onSquare(nil, func(m *member) error {
		into := m.Part().NewGradients()
		if m.odd {
			into.Router[5] = 3
		}
		g, err := m.NewGradients(into)
		if err != nil {
			return err
		}
		if err := g.Flush(); err != nil {
			return err
		}
		if m.odd != (into.Router[5] == 3) {
			t.Errorf("an accumulator is %v", into.Router[5])
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// Two layers of the same shape are two, also where their weights are the same.
func TestLayersAlike(t *testing.T) {
	x, _ := tokens(6, tiny)
	errs := onRanks(parallel.Local(2), func(i int, group parallel.Group) error {
		rank, err := parallel.Join(group, parallel.Grid{TP: 2, EP: 1})
		if err != nil {
			return err
		}
		var layers []*samebit.Layer
		for range 2 {
			l, err := samebit.New(tiny, &weights, samebit.Options{Ranks: rank})
			if err != nil {
				return err
			}
			defer l.Close()
			layers = append(layers, l)
		}
		_, err = layers[i].Forward(x)
		return err
	})
	everyRank(t, "another layer", errs, "forward: rank 0 was asked for {Layer:1 ")
}

// Ranks of two versions of the contract do not join.
func TestVersionsAlike(t *testing.T) {
	errs := onRanks(parallel.Local(2), func(i int, group parallel.Group) error {
		_, err := parallel.JoinAs(group, parallel.Grid{TP: 1, EP: 2}, contract.Version+i)
		return err
	})
	everyRank(t, "another version", errs, "join: rank 0 has")
}

// A text of any length, and of any bytes, is told.
func TestTell(t *testing.T) {
	texts := []string{strings.Repeat("\x00long\xff", 3000), ""}
	errs := onRanks(parallel.Local(2), func(i int, group parallel.Group) error {
		rank, err := parallel.Join(group, parallel.Grid{TP: 1, EP: 2})
		if err != nil {
			return err
		}
		told, err := rank.Tell(texts[i])
		if err == nil && !slices.Equal(told, texts) {
			t.Errorf("rank %d heard texts of %d and %d bytes, want %d and %d", i, len(told[0]), len(told[1]), len(texts[0]), len(texts[1]))
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
