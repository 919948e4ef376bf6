// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/internal/cuda/driver"
	"github.com/samebit/samebit/internal/cuda/image"
)

// PlanBackward is R5 for the tokens that take part (R9): the forward's plan over ids of which theirs alone are left.
func (l *layer) PlanBackward(a backend.PlanBackward) error {
	l.stages.Lock()
	defer l.stages.Unlock()
	if err := l.spare(a.Rows.Offsets, a.Rows.Token); err != nil {
		return err
	}
	tokens := a.Rows.Tokens
	s := &launches{layer: l}
	if tokens == 0 {
		s.plan(a.Rows, 0, true, rowWeights{})
		return s.err
	}
	live := s.scratch(&l.live, 4*tokens*l.TopK)
	run(s, image.BackwardLiveI32, [3]int{ceil(tokens, 8)}, 256, 0, &liveParams{dy: bf16(a.DY), ids: i32(a.IDs), live: live,
		tokens: l.count(tokens), hidden: int32(l.Hidden), slots: int32(l.TopK)})
	s.plan(a.Rows, live, true, rowWeights{of: fp32(a.Weights), z: fp32(a.Z), to: fp32(a.Weight)})
	return s.err
}

// ExpertsBackward is R8: where each row's activations lie, the product with its epilogue, and the trees from sums of 64 terms.
func (l *layer) ExpertsBackward(a backend.ExpertsBackward) error {
	tokens := a.Rows.Tokens
	if tokens == 0 {
		return nil
	}
	tiles, err := tilesOf(a.Rows, true)
	if err != nil {
		return err
	}
	l.stages.Lock()
	defer l.stages.Unlock()
	r, h := a.RoutedGrad, a.SharedGrad
	if err := l.spare(r.DGate, r.DUp, r.HW, h.DGate, h.DUp, h.HW); err != nil {
		return err
	}
	s := &launches{layer: l}
	all := tokens * (l.TopK + 1)
	place := s.scratch(&l.place, 4*all)
	run(s, image.BackwardPlacesI32, [3]int{ceil(all, 256)}, 256, 0, &placesParams{row: i32(a.Rows.Row), forward: i32(a.Forward.Row),
		offsets: i32(a.Forward.Offsets), place: place, taken: tiles.taken(), tokens: l.count(tokens), experts: int32(l.Experts),
		slots: int32(l.TopK), begun: int32(2 * l.gpu.Processors)})
	width := max(l.Width, l.SharedWidth)
	partials := ceil(width, 256) * 4
	partial := s.scratch(&l.sums, 4*all*partials)
	dy, pitch := s.aligned(&l.x, bf16(a.DY), tokens, l.Hidden)
	p := downBackwardParams{routed: l.w.routed.downTurned, shared: l.w.shared.downTurned, dy: dy, dyPitch: int64(pitch),
		token: i32(a.Rows.Token), place: place, weight: fp32(a.Weight), tiles: tiles.list(), tileCount: tiles.count(), taken: tiles.taken(),
		g: fp32(a.Routed.G), u: fp32(a.Routed.U), sharedG: fp32(a.Shared.G), sharedU: fp32(a.Shared.U),
		dg: bf16(a.RoutedGrad.DGate), du: bf16(a.RoutedGrad.DUp), hw: bf16(a.RoutedGrad.HW),
		sharedDG: bf16(a.SharedGrad.DGate), sharedDU: bf16(a.SharedGrad.DUp), sharedHW: bf16(a.SharedGrad.HW), partial: partial,
		hidden: int32(pitch), experts: int32(l.Experts), width: int32(l.Width), sharedWidth: int32(l.SharedWidth),
		blocks: int32(ceil(width, copyRows*tiles.tiling.Copies)), partials: int32(partials)}
	if (l.Width|l.SharedWidth)%8 == 0 && (p.g|p.u|p.sharedG|p.sharedU|p.dg|p.du|p.hw|p.sharedDG|p.sharedDU|p.sharedHW)%16 == 0 {
		p.whole = 1
	}
	p.ahead = l.after(image.BackwardPlacesI32)
	backwardProduct(s, tiles.tiling, tiles.tiling.Down, &p)
	run(s, image.ExpertsTreeBwdF32, [3]int{ceil(all, treeThreads)}, treeThreads, 0, &treeParams{offsets: i32(a.Rows.Offsets), partial: partial,
		dweight: fp32(a.DWeight), experts: int32(l.Experts), width: int32(l.Width), sharedWidth: int32(l.SharedWidth), partials: int32(partials)})
	return s.err
}

// RouteBackward is R10 up to the gradients of the logits.
func (l *layer) RouteBackward(a backend.RouteBackward) error {
	if a.Rows.Tokens == 0 {
		return nil
	}
	l.stages.Lock()
	defer l.stages.Unlock()
	p := routeBackwardParams{row: i32(a.Rows.Row), ids: i32(a.IDs), dweight: fp32(a.DWeight), logits: fp32(a.Logits), weights: fp32(a.Weights),
		z: fp32(a.Z), dlogits: fp32(a.DLogits), dz: fp32(a.DZ), tokens: l.count(a.Rows.Tokens), experts: int32(l.Experts),
		slots: int32(l.TopK), shared: l.shared(), room: int32(l.Experts)}
	kernel := image.RouteDenseBwdF32
	if l.NormTopK {
		kernel, p.room = image.RouteNormBwdF32, int32(l.TopK)
	}
	return launch(l.Backend, kernel, [3]int{ceil(a.Rows.Tokens, 8)}, 256, 8*4*int(p.room), &p)
}

// RowsBackward is R9 up to each row's part of dx.
func (l *layer) RowsBackward(a backend.RowsBackward) error {
	if a.Rows.Tokens == 0 {
		return nil
	}
	tiles, err := tilesOf(a.Rows, true)
	if err != nil {
		return err
	}
	tiling := tiles.tiling
	if other := tiling.Other; other != nil {
		if !other.tilesAlike(tiling) {
			tiles = tiles.other
		}
		tiling = other
	}
	l.stages.Lock()
	defer l.stages.Unlock()
	s := &launches{layer: l}
	p := gateUpBackwardParams{routed: l.w.routed.gateUpTurned, shared: l.w.shared.gateUpTurned, tiles: tiles.list(), tileCount: tiles.count(),
		out: bf16(a.Out), hidden: int32(l.Hidden), experts: int32(l.Experts), blocks: int32(ceil(l.Hidden, copyRows*tiling.Copies))}
	p.routedRows, p.parts, p.width = s.parts(&l.joined, &l.h, a.RoutedGrad, a.Rows.Tokens*l.TopK, l.Width)
	p.sharedRows, p.sharedParts, p.sharedWidth = p.routedRows, p.parts, p.width // not used
	if l.SharedWidth > 0 {
		p.sharedRows, p.sharedParts, p.sharedWidth = s.parts(&l.sharedJoined, &l.sharedH, a.SharedGrad, a.Rows.Tokens, l.SharedWidth)
	}
	p.ahead = l.after(image.RouteNormBwdF32, image.RouteDenseBwdF32)
	if tiling.Cluster == 1 {
		backwardProduct(s, tiling, tiling.GateUp, &p)
		return s.err
	}
	p.outRows = s.results(p.out, a.Out.Len()/l.Hidden, l.Hidden)
	product(s, tiling, tiling.GateUp, &p)
	return s.err
}

// backwardProduct launches as product does, with room for what leaves.
func backwardProduct[P any](s *launches, t *Tiling, kernel int, p *P) {
	run(s, kernel, [3]int{s.gpu.Processors}, productThreads, ringBytes(t.Copies, t.Most, t.Stages)+leavingBytes+takenBytes, p)
}

// parts describes rows [dg|du] for the copy engine, and gives the number of parts and the terms of each: two, or where the width
// is no multiple of 16, one.
func (s *launches) parts(joined, copied *scratch, g backend.RowGradients, rows, width int) (maps [2]driver.TensorMap, parts, terms int32) {
	dg, du := bf16(g.DGate), bf16(g.DUp)
	if !joins(width) {
		dg, _ = s.aligned(joined, dg, rows, width)
		du, _ = s.aligned(copied, du, rows, width)
		return [2]driver.TensorMap{s.rows(dg, rows, width, 16), s.rows(du, rows, width, 16)}, 2, int32(width)
	}
	pitch := pad(2 * width)
	to := s.scratch(joined, 2*rows*pitch)
	run(s, image.ExpertsJoinBf16, [3]int{ceil(rows*pitch, 2048)}, 256, 0,
		&joinParams{first: dg, second: du, to: to, rows: int64(rows), columns: int32(width), pitch: int32(pitch)})
	m := s.rows(to, rows, pitch, 16)
	return [2]driver.TensorMap{m, m}, 1, int32(pitch)
}

// InputGradient is R9's sum.
func (l *layer) InputGradient(a backend.InputGradient) error {
	if a.Rows.Tokens == 0 {
		return nil
	}
	l.stages.Lock()
	defer l.stages.Unlock()
	p := inputParams{row: i32(a.Rows.Row), ids: i32(a.IDs), in: bf16(a.In), dlogits: fp32(a.DLogits), dz: fp32(a.DZ), router: l.w.router,
		dx: bf16(a.DX), routerPitch: int64(pad(l.Hidden)), tokens: l.count(a.Rows.Tokens), hidden: int32(l.Hidden), experts: int32(l.Experts),
		slots: int32(l.TopK), shared: l.shared()}
	kernel, each := image.BackwardInputDenseAnyBf16, 1
	if l.NormTopK {
		kernel = image.BackwardInputNormAnyBf16
	}
	if l.Hidden%8 == 0 && p.in%16 == 0 && p.dx%16 == 0 {
		kernel, each = image.BackwardInputDenseRowsBf16, 8
		if l.NormTopK {
			kernel = image.BackwardInputNormRowsBf16
		}
	}
	return launch(l.Backend, kernel, [3]int{a.Rows.Tokens}, min(combineThreads, ceil(ceil(l.Hidden, each), 32)*32), 4*(3*l.TopK+1), &p)
}
