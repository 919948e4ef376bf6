// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/internal/cuda/driver"
	"github.com/samebit/samebit/internal/cuda/image"
)

// tilesOf are the tiles of a plan that this backend made, for the forward or for the backward.
func tilesOf(r backend.Rows, backward bool) (*tileSet, error) {
	t := r.Offsets.(*buffer).tiles
	if t == nil || t.tiling == nil {
		return nil, errors.New("cuda: rows without tiles: need a plan that this backend made")
	}
	if t.backward != backward {
		pass := map[bool]string{false: "forward", true: "backward"}
		return nil, fmt.Errorf("cuda: rows planned for the %s: need a plan for the %s", pass[t.backward], pass[backward])
	}
	return t, nil
}

// GateUp is R6 up to h.
func (l *layer) GateUp(a backend.GateUp) error {
	if a.Rows.Tokens == 0 {
		return nil
	}
	tiles, err := tilesOf(a.Rows, false)
	if err != nil {
		return err
	}
	l.stages.Lock()
	defer l.stages.Unlock()
	s := &launches{layer: l}
	x, pitch := s.aligned(&l.x, bf16(a.X), a.Rows.Tokens, l.Hidden)
	p := gateUpParams{routed: l.w.routed.gateUpMap, shared: l.w.shared.gateUpMap, x: x, xPitch: int64(pitch), token: i32(a.Rows.Token),
		tiles: tiles.list(), tileCount: tiles.count(),
		g: fp32(a.Routed.G), u: fp32(a.Routed.U), h: bf16(a.Routed.H), sharedG: fp32(a.Shared.G), sharedU: fp32(a.Shared.U), sharedH: bf16(a.Shared.H),
		hidden: int32(pitch), experts: int32(l.Experts), width: int32(l.Width), sharedWidth: int32(l.SharedWidth),
		blocks: int32(ceil(max(l.Width, l.SharedWidth), copyRows/2*tiles.tiling.Copies)), ahead: l.after(image.PlanPlaceI32)}
	product(s, tiles.tiling, tiles.tiling.GateUp, &p)
	return s.err
}

// Down is R6 from h.
func (l *layer) Down(a backend.Down) error {
	if a.Rows.Tokens == 0 {
		return nil
	}
	tiles, err := tilesOf(a.Rows, false)
	if err != nil {
		return err
	}
	l.stages.Lock()
	defer l.stages.Unlock()
	s := &launches{layer: l}
	h, pitch := s.aligned(&l.h, bf16(a.Routed.H), a.Rows.Tokens*l.TopK, l.Width)
	p := downParams{routedRows: s.rows(h, a.Rows.Tokens*l.TopK, pitch, 16), routed: l.w.routed.downMap, shared: l.w.shared.downMap, width: int32(pitch),
		tiles: tiles.list(), tileCount: tiles.count(), out: bf16(a.Out), hidden: int32(l.Hidden), experts: int32(l.Experts),
		blocks: int32(ceil(l.Hidden, copyRows*tiles.tiling.Copies))}
	if l.SharedWidth > 0 {
		h, pitch := s.aligned(&l.sharedH, bf16(a.Shared.H), a.Rows.Tokens, l.SharedWidth)
		p.sharedRows, p.sharedWidth = s.rows(h, a.Rows.Tokens, pitch, 16), int32(pitch)
	}
	p.outRows = s.results(p.out, a.Out.Len()/l.Hidden, l.Hidden)
	product(s, tiles.tiling, tiles.tiling.Down, &p)
	return s.err
}

// rows describes a matrix for the copy engine, each rows at a time.
func (s *launches) rows(at pointer, rows, pitch, each int) driver.TensorMap {
	if s.err != nil {
		return driver.TensorMap{}
	}
	var m driver.TensorMap
	m, s.err = s.gpu.NewTensorMap(driver.Tensor{At: at, Sizes: sizes(pitch, rows), Strides: sizes(2 * pitch), Box: []uint32{stageTerms, uint32(each)}})
	return m
}

// results is rows of a matrix that a product writes, 16 at a time; of one that the copy engine cannot write it is none, and the kernels know.
func (s *launches) results(at pointer, rows, columns int) driver.TensorMap {
	if columns%8 != 0 || at%16 != 0 {
		return driver.TensorMap{}
	}
	return s.rows(at, rows, columns, 16)
}

// product launches an experts' kernel, one block to a multiprocessor.
func product[P any](s *launches, t *Tiling, kernel int, p *P) {
	run(s, kernel, [3]int{s.gpu.Processors / t.Cluster * t.Cluster}, productThreads, ringBytes(t.Copies, t.Most, t.Stages)+stagingBytes, p)
}
