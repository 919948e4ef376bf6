// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package cpu is the backend for ordinary processors: blocked products over a fixed partition of the work, with AVX-512 (with or
// without its instructions on BF16), AVX2 or Go's own kernels. Which worker does what depends on the plan alone, never on arrival, and no sum is ever split, so the
// bits do not depend on the workers.
package cpu

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/cpu/tcdot"
	"github.com/samebit/samebit/internal/host"
)

func init() { backend.Register("cpu", open) }

// Backend implements backend.Backend.
type Backend struct {
	*host.Memory
	crew *crew
}

// Env names the kernels to use in place of the machine's best: avx512bf16, avx512, avx2 or go. It changes no bit; tests climb down the ladder with it.
const Env = "SAMEBIT_CPU"

func open(o backend.Options) (backend.Backend, error) {
	workers := o.Workers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	k, err := choose(os.Getenv(Env))
	if err != nil {
		return nil, err
	}
	var lie *tcdot.LawError
	if err := prove(k.isa); errors.As(err, &lie) {
		return nil, &backend.UnsupportedError{Backend: "cpu",
			Need: fmt.Sprintf("floating point that follows the contract's law (R1): %08X", lie.Want),
			Have: fmt.Sprintf("%s that gives %08X", lie.By, lie.Have)}
	} else if err != nil {
		return nil, err
	}
	return &Backend{&host.Memory{}, newCrew(workers, k)}, nil
}

// prove refuses kernels, or a compiler's floating point, that do not give the known answers (R14).
var prove = tcdot.Prove

// choose gives the kernels of that name, or the best for none.
func choose(name string) (kernels, error) {
	for _, k := range sets() {
		if k.name() == name || name == "" {
			return k, nil
		}
	}
	return kernels{}, &backend.UnsupportedError{Backend: "cpu",
		Need: Env + " to be one of " + strings.Join(Kernels(), ", "), Have: fmt.Sprintf("%q", name)}
}

func (*Backend) Name() string { return "cpu" }
func (b *Backend) Device() string {
	return fmt.Sprintf("%s/%s, %s kernels, %d workers", runtime.GOOS, runtime.GOARCH, b.crew.kernels.name(), b.crew.size)
}

// Close ends the workers.
func (b *Backend) Close() error {
	b.crew.close()
	return nil
}

// Load checks the weights, and packs them where the kernels are vectors'.
func (b *Backend) Load(s backend.Spec) (backend.Layer, error) {
	if err := s.Weights.Check(s.Shape); err != nil {
		return nil, err
	}
	l := &layer{Shape: s.Shape, w: s.Weights, copied: s.Copied, bf16Logits: s.BF16Logits, crew: b.crew, kernels: b.crew.kernels}
	if err := l.allocate(); err != nil {
		return nil, fmt.Errorf("cpu: memory for packed weights: %w", err)
	}
	if err := l.Refresh(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

type layer struct {
	contract.Shape
	w          *contract.Weights
	weights    weights
	copied     func([]contract.BF16)
	bf16Logits bool
	*crew
	kernels
}

// Close frees the packed weights.
func (l *layer) Close() error {
	if l.weights.free != nil {
		l.weights.free()
	}
	l.weights = weights{}
	return nil
}

// expert is the weights of group e, the shared expert being group E.
func (l *layer) expert(e int) *contract.Expert {
	if e == l.Experts {
		return l.w.Shared
	}
	return &l.w.Experts[e]
}

// width is group e's width.
func (l *layer) width(e int) int {
	if e == l.Experts {
		return l.SharedWidth
	}
	return l.Width
}

func (l *layer) hidden(int) int { return l.Hidden }

// of is the routed or the shared one of two.
func of[T any](l *layer, e int, routed, shared T) T {
	if e == l.Experts {
		return shared
	}
	return routed
}

// row is row i of a matrix of n columns.
func row[T any](m []T, i, n int) []T { return m[i*n : (i+1)*n : (i+1)*n] }

// rowsOf are the rows of a matrix of n columns.
func rowsOf[T any](m []T, n int) [][]T {
	r := make([][]T, len(m)/n)
	for i := range r {
		r[i] = row(m, i, n)
	}
	return r
}
