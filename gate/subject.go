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
	"github.com/samebit/samebit/parallel"
)

// Subject is a layer under test: whole, or on ranks, each of which gives the results of all tokens. Ranks are those in this process.
type Subject struct {
	Name    string
	Options samebit.Options
	Ranks   []Member
	Grid    *parallel.Grid // nil where the layer is on no ranks
	Shape   contract.Shape
	Weights *contract.Weights
	Tokens  []int // the token counts of the cases that take one; nil for DefaultTokens

	folder fs.FS // the checkpoint's; nil for synthetic weights
	source *checkpoint.Checkpoint
	layer  *checkpoint.Layer
}

// seed is that of all that is made up here.
const seed = 20260101

// FromFolder opens layer n of a Hugging Face folder, on the ranks of this process where there are any.
func FromFolder(dir string, n int, o samebit.Options, ranks ...*parallel.Rank) (*Subject, error) {
	c, err := checkpoint.Open(dir)
	if err != nil {
		return nil, err
	}
	return fromCheckpoint(fmt.Sprintf("%s layer %d", dir, n), c, os.DirFS(dir), n, o, ranks)
}

// embedded is the name of the subject that Embedded gives.
const embedded = "qwen3-next-tiny"

// Embedded is layer 1 of the tiny Qwen3-Next checkpoint that the program carries.
func Embedded(o samebit.Options, ranks ...*parallel.Rank) (*Subject, error) {
	return fromFS(embedded, testdata.Qwen3Next(), 1, o, ranks...)
}

// Default are the subjects of a gate that is asked for no other: the embedded checkpoint, and a synthetic layer in the middle
// between it and a real one.
func Default(o samebit.Options, ranks ...*parallel.Rank) ([]*Subject, error) {
	tiny, err := Embedded(o, ranks...)
	if err != nil {
		return nil, err
	}
	mid, err := Synthetic("mid", o, ranks...)
	if err != nil {
		tiny.Close()
		return nil, err
	}
	return []*Subject{tiny, mid}, nil
}

func fromFS(name string, folder fs.FS, n int, o samebit.Options, ranks ...*parallel.Rank) (*Subject, error) {
	c, err := checkpoint.OpenFS(folder)
	if err != nil {
		return nil, err
	}
	return fromCheckpoint(name, c, folder, n, o, ranks)
}

func fromCheckpoint(name string, c *checkpoint.Checkpoint, folder fs.FS, n int, o samebit.Options, ranks []*parallel.Rank) (*Subject, error) {
	layer, err := c.Layer(n)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s, err := New(name, layer.Shape, &layer.Weights, o, ranks...)
	if err != nil {
		c.Close()
		return nil, err
	}
	s.folder, s.source, s.layer = folder, c, layer
	return s, nil
}

// Synthetic is a layer of one of the named shapes, with made-up weights that are the same everywhere.
func Synthetic(shape string, o samebit.Options, ranks ...*parallel.Rank) (*Subject, error) {
	s, err := testgen.Shape(shape)
	if err != nil {
		return nil, err
	}
	w := testgen.Weights(s, seed)
	return New("synthetic "+shape, s, &w, o, ranks...)
}

// New opens a layer of weights in memory.
func New(name string, shape contract.Shape, w *contract.Weights, o samebit.Options, ranks ...*parallel.Rank) (*Subject, error) {
	s := &Subject{Name: name, Options: o, Shape: shape, Weights: w}
	if len(ranks) > 0 {
		s.Grid = &ranks[0].Grid
	}
	if o.NormTopK != nil {
		s.Shape.NormTopK = *o.NormTopK
	}
	var err error
	if s.Ranks, err = s.open(o, ranks); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// size is how many ranks there are, here and elsewhere.
func (s *Subject) size() int {
	if s.Grid == nil {
		return len(s.Ranks)
	}
	return s.Grid.Ranks()
}

// ranks are the ranks of this process.
func (s *Subject) ranks() []*parallel.Rank {
	if s.Grid == nil {
		return nil
	}
	var ranks []*parallel.Rank
	for _, m := range s.Ranks {
		ranks = append(ranks, m.Rank)
	}
	return ranks
}

// Close gives back what the subject holds.
func (s *Subject) Close() error {
	errs := []error{closeAll(s.Ranks)}
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
