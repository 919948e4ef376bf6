// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/cuda/image"
)

// What the kernels can take.
const (
	mostExperts = 2048                // that a warp can choose among
	mostColumns = 1 << 22             // of a gradient: the fold counts them by 64, in 16 bits
	mostTokens  = 65535 * logitTokens // of one call: blocks of the router's grid
)

func fits(s contract.Shape) error {
	if s.Experts > mostExperts {
		return fmt.Errorf("cuda: %d experts: need at most %d", s.Experts, mostExperts)
	}
	if n := max(s.Hidden, s.Width, s.SharedWidth); n > mostColumns {
		return fmt.Errorf("cuda: hidden %d, width %d, shared width %d: need at most %d", s.Hidden, s.Width, s.SharedWidth, mostColumns)
	}
	return nil
}

// layer implements backend.Layer. A stage asks for its kernels in one go (Backend.stages), so that what several calls share on
// the way (scratch) is used by one after the other.
type layer struct {
	*Backend
	contract.Shape
	from       *contract.Weights
	copied     func([]contract.BF16) // of backend.Spec
	w          *weights
	bf16Logits int32
	tiling     *Tiling // in place of tilingFor's choice; nil for that
	tokens     pointer // of the token count on the GPU, in place of the stages' own; 0 for none
	holds      int     // bytes of calls that a fold holds, in place of mostHeld; 0 for that

	partial, counts, x, h, sharedH scratch

	backwardTiling                          *Tiling // as tiling, of the backward
	live, place, sums, joined, sharedJoined scratch
}

// Load checks the weights and sends them to the GPU.
func (b *Backend) Load(s backend.Spec) (backend.Layer, error) {
	if err := s.Weights.Check(s.Shape); err != nil {
		return nil, err
	}
	if err := fits(s.Shape); err != nil {
		return nil, err
	}
	l := &layer{Backend: b, Shape: s.Shape, from: s.Weights, copied: s.Copied, w: &weights{}}
	if s.BF16Logits {
		l.bf16Logits = 1
	}
	if err := l.Refresh(); err != nil {
		l.drop(l.w)
		return nil, err
	}
	return l, nil
}

// Refresh sends the weights again, to the same place, so that graphs that were captured before go on with the new ones.
func (l *layer) Refresh() error {
	l.stages.Lock()
	defer l.stages.Unlock()
	return l.upload(l.w, l.Shape, l.from, l.copied)
}

// Close gives the weights' memory back.
func (l *layer) Close() error {
	l.drop(l.w)
	for _, s := range []*scratch{&l.partial, &l.counts, &l.x, &l.h, &l.sharedH,
		&l.live, &l.place, &l.sums, &l.joined, &l.sharedJoined} {
		l.release(s)
	}
	return nil
}

func (l *layer) shared() int32 {
	if l.SharedWidth > 0 {
		return 1
	}
	return 0
}

func (l *layer) count(tokens int) count { return count{device: l.tokens, most: int32(tokens)} }

// launches asks for kernels until one fails.
type launches struct {
	*layer
	err error
}

func run[P any](s *launches, kernel int, grid [3]int, block, shared int, p *P) {
	if s.err == nil {
		s.err = launch(s.Backend, kernel, grid, block, shared, p)
	}
}

func (s *launches) scratch(of *scratch, bytes int) pointer {
	if s.err != nil {
		return 0
	}
	var p pointer
	p, s.err = s.memory.scratch(of, bytes)
	return p
}

// aligned gives rows as the products can gather them, 16 bytes at a time: in place, or a padded copy; and their pitch.
func (s *launches) aligned(of *scratch, from pointer, rows, columns int) (pointer, int) {
	if columns%8 == 0 && from%16 == 0 {
		return from, columns
	}
	pitch := pad(columns)
	to := s.scratch(of, 2*rows*pitch)
	s.padRows(to, from, rows, columns)
	return to, pitch
}

// padRows copies rows to ones of pad(columns), with zeros behind.
func (s *launches) padRows(to, from pointer, rows, columns int) {
	pitch := pad(columns)
	run(s, image.LayerPadBf16, [3]int{ceil(rows*pitch, 2048)}, 256, 0,
		&padParams{from: from, to: to, rows: int64(rows), columns: int32(columns), pitch: int32(pitch)})
}
