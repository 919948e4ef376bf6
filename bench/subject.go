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
)

// Seed makes the weights and the tokens, also those that `samebit synth` writes for the rivals.
const Seed = 0

// Subject is a loaded layer to time.
type Subject struct {
	name          string // of the shape
	backend       string
	layer         *samebit.Layer
	workers       int
	given, loaded int64      // bytes, as Memory has them
	grads         *gradients // of the pass gradsOf; made when first needed
	gradsOf       Pass
	tokens        int // that x and dy have
	x, dy         []samebit.BF16
	device        *onDevice // of the case at hand; nil where it runs in the host's memory
}

// New makes a subject of weights in memory, which stay in use until Close.
func New(name string, s contract.Shape, w *contract.Weights, o samebit.Options) (*Subject, error) {
	return load(o, weightBytes(s), func() (string, *samebit.Layer, error) {
		l, err := samebit.New(s, w, o)
		return name, l, err
	})
}

// Open makes a subject of a checkpoint's layer. Its shape has testgen's name, or else the folder's.
func Open(dir string, layer int, o samebit.Options) (*Subject, error) {
	return load(o, 0, func() (string, *samebit.Layer, error) {
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

func load(o samebit.Options, given int64, layer func() (string, *samebit.Layer, error)) (*Subject, error) {
	debug.FreeOSMemory()
	before := resident()
	name, l, err := layer()
	if err != nil {
		return nil, err
	}
	return &Subject{name: name, backend: cmp.Or(o.Backend, "cpu"), layer: l, workers: cmp.Or(o.Workers, runtime.GOMAXPROCS(0)),
		given: given, loaded: max(0, resident()-before)}, nil
}

// Backend is the backend's name.
func (s *Subject) Backend() string { return s.backend }

// Device says for people what runs the work.
func (s *Subject) Device() string { return s.layer.Device() }

// memory is what the case at hand took.
func (s *Subject) memory(p Pass) Memory {
	if s.device != nil {
		return s.device.memory()
	}
	m := Memory{Peak: peak(), Given: s.given, Loaded: s.loaded}
	if p != Forward {
		m.Gradients = s.grads.bytes
	}
	m.Workspace = m.rest()
	return m
}

// Close gives back what the subject holds.
func (s *Subject) Close() error {
	if s.grads != nil {
		s.grads.Close()
	}
	return errors.Join(s.leaveDevice(), s.layer.Close())
}

// Case is the case of that pass and so many tokens.
func (s *Subject) Case(p Pass, tokens int) Case {
	return Case{Shape: s.name, By: "backend=" + s.backend, Pass: p, Tokens: tokens}
}

// pool is of how many tokens the runs take theirs.
func pool(tokens int) int { return max(512, 4*tokens) }

// Runner makes ready for a pass. Each call of what it gives is one run, of the tokens that follow those of the run before.
func (s *Subject) Runner(p Pass, tokens int) (func() (Run, error), error) {
	if tokens < 1 {
		return nil, fmt.Errorf("found %d tokens: need at least 1", tokens)
	}
	h := s.layer.Shape().Hidden
	if n := pool(tokens); s.tokens < n {
		s.tokens, s.x, s.dy = n, testgen.Tokens(n, h, Seed), testgen.Upstream(n, h, Seed)
	}
	if err := s.leaveDevice(); err != nil {
		return nil, err
	}
	d, err := newOnDevice(s.layer, p, s.x, s.dy, tokens)
	if err == nil {
		s.device = d
		return d.run, nil
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		return nil, err
	}
	if p != Forward && s.gradsOf != p {
		s.grads = nil // so that one of the two is in memory at a time
		if s.grads, err = newGradients(s.layer, p); err != nil {
			return nil, err
		}
		s.gradsOf = p
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

// Run is one run.
type Run struct {
	Time    time.Duration
	Experts float64 // with a token
}

func (s *Subject) run(p Pass, x, dy []samebit.BF16) (Run, error) {
	var options []samebit.ForwardOption
	if p != Forward {
		options = append(options, samebit.Train)
	}
	start := time.Now()
	out, err := s.layer.Forward(x, options...)
	if err == nil && p != Forward {
		err = s.backward(out.Tape, dy)
	}
	spent := time.Since(start)
	if err != nil {
		return Run{}, err
	}
	load := out.Load()
	return Run{spent, float64(len(load.Tokens) - load.Dead)}, nil
}

func (s *Subject) backward(tape *samebit.Tape, dy []samebit.BF16) error {
	defer tape.Free()
	if _, err := s.layer.Backward(tape, dy, s.grads.Gradients); err != nil {
		return err
	}
	return s.grads.Flush()
}
