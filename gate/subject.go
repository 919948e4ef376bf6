// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/checkpoint/testdata"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
)

// Subject is a layer under test: on one rank, or on a group of them, each of which gives the results of all tokens.
type Subject struct {
	Name    string
	Options samebit.Options
	Ranks   []*samebit.Layer
	Shape   contract.Shape
	Weights *contract.Weights
	Tokens  []int // the token counts of the cases that take one; nil for DefaultTokens

	folder fs.FS // the checkpoint's; nil for synthetic weights
	source *checkpoint.Checkpoint
	layer  *checkpoint.Layer
}

// seed is that of all that is made up here.
const seed = 20260101

// FromFolder opens layer n of a Hugging Face folder.
func FromFolder(dir string, n int, o samebit.Options) (*Subject, error) {
	c, err := checkpoint.Open(dir)
	if err != nil {
		return nil, err
	}
	return fromCheckpoint(fmt.Sprintf("%s layer %d", dir, n), c, os.DirFS(dir), n, o)
}

// embedded is the name of the subject that Embedded gives.
const embedded = "qwen3-next-tiny"

// Embedded is layer 1 of the tiny Qwen3-Next checkpoint that the program carries.
func Embedded(o samebit.Options) (*Subject, error) {
	return fromFS(embedded, testdata.Qwen3Next(), 1, o)
}

// Default are the subjects of a gate that is asked for no other: the embedded checkpoint, and a synthetic layer in the middle
// between it and a real one.
func Default(o samebit.Options) ([]*Subject, error) {
	tiny, err := Embedded(o)
	if err != nil {
		return nil, err
	}
	mid, err := Synthetic("mid", o)
	if err != nil {
		tiny.Close()
		return nil, err
	}
	return []*Subject{tiny, mid}, nil
}

func fromFS(name string, folder fs.FS, n int, o samebit.Options) (*Subject, error) {
	c, err := checkpoint.OpenFS(folder)
	if err != nil {
		return nil, err
	}
	return fromCheckpoint(name, c, folder, n, o)
}

func fromCheckpoint(name string, c *checkpoint.Checkpoint, folder fs.FS, n int, o samebit.Options) (*Subject, error) {
	layer, err := c.Layer(n)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s, err := New(name, layer.Shape, &layer.Weights, o)
	if err != nil {
		c.Close()
		return nil, err
	}
	s.folder, s.source, s.layer = folder, c, layer
	return s, nil
}

// Synthetic is a layer of one of the named shapes, with made-up weights that are the same everywhere.
func Synthetic(shape string, o samebit.Options) (*Subject, error) {
	s, err := testgen.Shape(shape)
	if err != nil {
		return nil, err
	}
	w := testgen.Weights(s, seed)
	return New("synthetic "+shape, s, &w, o)
}

// New opens a layer of weights in memory on one rank.
func New(name string, shape contract.Shape, w *contract.Weights, o samebit.Options) (*Subject, error) {
	s := &Subject{Name: name, Options: o, Shape: shape, Weights: w}
	if o.NormTopK != nil {
		s.Shape.NormTopK = *o.NormTopK
	}
	rank, err := s.open(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s.Ranks = []*samebit.Layer{rank}
	return s, nil
}

// open opens the layer once more.
func (s *Subject) open(o samebit.Options) (*samebit.Layer, error) {
	return samebit.New(s.Shape, s.Weights, o)
}

// Close gives back what the subject holds.
func (s *Subject) Close() error {
	var errs []error
	for _, l := range s.Ranks {
		errs = append(errs, l.Close())
	}
	if s.source != nil {
		errs = append(errs, s.source.Close())
	}
	return errors.Join(errs...)
}

func (s *Subject) tokens() []int {
	if len(s.Tokens) == 0 {
		return DefaultTokens
	}
	return s.Tokens
}

// backend is the name of the backend that the subject runs on.
func (s *Subject) backend() string {
	if s.Options.Backend == "" {
		return "cpu"
	}
	return s.Options.Backend
}
