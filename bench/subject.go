// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
	"github.com/samebit/samebit/parallel"
)

// Seed makes the weights and the tokens, also those that `samebit synth` writes for the rivals.
const Seed = 0

// Subject is a loaded layer to time.
type Subject struct {
	name          string // of the shape
	backend       string
	members       []*member      // one, or those of this process's ranks
	grid          *parallel.Grid // nil for a layer that is whole
	workers       int
	given, loaded int64 // bytes, as Memory has them
	gradsOf       Pass  // that the members' gradients are of
	tokens        int   // that x and dy have
	x, dy         []samebit.BF16
	device        *onDevice // of the case at hand; nil where it runs in the host's memory
}

// New makes a subject of weights in memory, which stay in use until Close, on the ranks of this process where there are any. Weights
// may be a rank's part alone.
func New(name string, s contract.Shape, w *contract.Weights, o samebit.Options, ranks ...*parallel.Rank) (*Subject, error) {
	given := int64(0)
	for _, p := range parts(s) {
		given += 2 * int64(len(*p.In(w)))
	}
	return load(o, given, ranks, func(o samebit.Options) (string, *samebit.Layer, error) {
		l, err := samebit.New(s, w, o)
		return name, l, err
	})
}

// Open makes a subject of a checkpoint's layer. Its shape has testgen's name, or else the folder's.
func Open(dir string, layer int, o samebit.Options, ranks ...*parallel.Rank) (*Subject, error) {
	return load(o, 0, ranks, func(o samebit.Options) (string, *samebit.Layer, error) {
		l, err := samebit.Open(dir, layer, o)
		if err != nil {
			return "", nil, err
		}
		for _, known := range testgen.Shapes {
			if known.Shape == l.Shape() {
				return known.Name, l, nil
			}
		}
		return filepath.Base(filepath.Clean(dir)), l, nil
	})
}

func load(o samebit.Options, given int64, ranks []*parallel.Rank, layer func(samebit.Options) (string, *samebit.Layer, error)) (*Subject, error) {
	s := &Subject{backend: cmp.Or(o.Backend, "cpu"), workers: cmp.Or(o.Workers, runtime.GOMAXPROCS(0)), given: given}
	if len(ranks) > 0 {
		s.grid = &ranks[0].Grid
	} else {
		ranks = []*parallel.Rank{nil}
	}
	debug.FreeOSMemory()
	before := resident()
	s.members = make([]*member, len(ranks))
	err := parallel.Together(ranks, func(i int, r *parallel.Rank) error {
		o := o
		if r != nil {
			o.Ranks = r
		}
		if i > 0 {
			o.Progress = nil
		}
		name, l, err := layer(o)
		if err != nil {
			return err
		}
		s.members[i] = &member{Layer: l, rank: r}
		if i == 0 {
			s.name = name
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.loaded = max(0, resident()-before)
	return s, nil
}

// ranks are those of the members.
func (s *Subject) ranks() (all []*parallel.Rank) {
	for _, m := range s.members {
		all = append(all, m.rank)
	}
	return all
}

// shape is the layer's.
func (s *Subject) shape() contract.Shape { return s.members[0].Shape() }

// Backend is the backend's name.
func (s *Subject) Backend() string { return s.backend }

// Device says for people what runs the work.
func (s *Subject) Device() string { return s.members[0].Device() }

// memory is what the case at hand took.
func (s *Subject) memory(p Pass) Memory {
	if s.device != nil {
		return s.device.memory()
	}
	m := Memory{Peak: peak(), Given: s.given, Loaded: s.loaded}
	if p != Forward {
		for _, member := range s.members {
			m.Gradients += member.grads.bytes
		}
	}
	m.Workspace = m.rest()
	return m
}

// Close gives back what the subject holds.
func (s *Subject) Close() error {
	err := s.leaveDevice()
	s.dropGradients()
	for _, m := range s.members {
		if m != nil {
			err = errors.Join(err, m.Layer.Close())
		}
	}
	return err
}

// Case is the case of that pass and so many tokens.
func (s *Subject) Case(p Pass, tokens int) Case {
	by := "backend=" + s.backend
	if s.grid != nil {
		by += fmt.Sprintf("/tp=%d/ep=%d", s.grid.TP, s.grid.EP)
	}
	return Case{Shape: s.name, By: by, Pass: p, Tokens: tokens}
}

// pool is of how many tokens the runs take theirs.
func pool(tokens int) int { return max(512, 4*tokens) }

// Runner makes ready for a pass. Each call of what it gives is one run, of the tokens that follow those of the run before.
func (s *Subject) Runner(p Pass, tokens int) (func() (Run, error), error) {
	if tokens < 1 {
		return nil, fmt.Errorf("found %d tokens: need at least 1", tokens)
	}
	h := s.shape().Hidden
	if n := pool(tokens); s.tokens < n {
		s.tokens, s.x, s.dy = n, testgen.Tokens(n, h, Seed), testgen.Upstream(n, h, Seed)
	}
	if err := s.leaveDevice(); err != nil {
		return nil, err
	}
	if s.grid == nil {
		d, err := newOnDevice(s.members[0].Layer, p, s.x, s.dy, tokens)
		if err == nil {
			s.device = d
			return d.run, nil
		}
		if !errors.Is(err, errors.ErrUnsupported) {
			return nil, err
		}
	}
	if p != Forward && s.gradsOf != p {
		if err := s.newGradients(p); err != nil {
			return nil, err
		}
	}
	at := 0
	return func() (Run, error) {
		from, to := at*tokens*h, (at+1)*tokens*h
		at = (at + 1) % (pool(tokens) / tokens)
		return s.run(p, s.x[from:to], s.dy[from:to])
	}, nil
}

// leaveDevice ends the case that ran there.
func (s *Subject) leaveDevice() error {
	d := s.device
	s.device = nil
	if d == nil {
		return nil
	}
	return d.close()
}

// newGradients makes those of a pass, in place of another's: one of the two is in memory at a time.
func (s *Subject) newGradients(p Pass) error {
	s.dropGradients()
	s.gradsOf = p
	return parallel.Together(s.ranks(), func(i int, _ *parallel.Rank) (err error) {
		s.members[i].grads, err = newGradients(s.members[i].Layer, p)
		return err
	})
}

// dropGradients gives them back.
func (s *Subject) dropGradients() {
	for _, m := range s.members {
		if m != nil && m.grads != nil {
			m.grads.Close()
			m.grads = nil
		}
	}
	s.gradsOf = Forward // which has none
}

// Run is one run.
type Run struct {
	Time    time.Duration
	Wall    time.Duration // that it took to measure that; alike on all ranks
	Experts float64       // with a token
}

func (s *Subject) run(p Pass, x, dy []samebit.BF16) (Run, error) {
	if s.grid == nil {
		return s.members[0].run(p, x, dy)
	}
	runs := make([]Run, len(s.members))
	err := parallel.Together(s.ranks(), func(i int, _ *parallel.Rank) (err error) {
		runs[i], err = s.members[i].run(p, x, dy)
		return err
	})
	return runs[0], err
}

// volume is what this process's ranks have sent, one by one.
func (s *Subject) volume() (all []parallel.Volume) {
	for _, r := range s.ranks() {
		if r != nil {
			all = append(all, r.Volume())
		}
	}
	return all
}

// sent is what all ranks have sent since then, for so many tokens.
func (s *Subject) sent(before []parallel.Volume, tokens int) (*parallel.PerToken, error) {
	if s.grid == nil {
		return nil, nil
	}
	sums := make([]parallel.Volume, len(s.members))
	err := parallel.Together(s.ranks(), func(i int, r *parallel.Rank) (err error) {
		sums[i], err = r.SumVolumes(r.Volume().Minus(before[i]))
		return err
	})
	if err != nil {
		return nil, err
	}
	return sums[0].PerToken(*s.grid, tokens, s.shape().Hidden), nil
}
