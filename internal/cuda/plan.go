// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/internal/cuda/image"
)

// tileSet is how a plan's rows are cut into tiles, for the experts' kernels: a count, and from the sixteenth byte the tiles.
type tileSet struct {
	scratch
	tiling   *Tiling
	backward bool
	other    *tileSet // by tiling.Other
}

func (t *tileSet) count() pointer { return t.at }

// taken is how much of the work is, where blocks take it as they become free: so a set is of one such product at a time.
func (t *tileSet) taken() pointer { return t.at + 4 }

func (t *tileSet) list() pointer { return t.at + tileBytes }

// Plan is R5, and the tiles.
func (l *layer) Plan(a backend.Plan) error {
	l.stages.Lock()
	defer l.stages.Unlock()
	s := &launches{layer: l}
	s.plan(a.Rows, i32(a.IDs), a.Backward, rowWeights{})
	return s.err
}

// tilingFor is what the products of so many tokens are cut by.
func (l *layer) tilingFor(tokens int, backward bool) *Tiling {
	forced, table := l.tiling, Tilings[:]
	if backward {
		forced, table = l.backwardTiling, BackwardTilings[:]
	}
	if forced != nil {
		return forced
	}
	return tilingFor(table, tokens, l.TopK, l.Experts)
}

// rowWeights are the weights of tokens' routes and what makes that of the shared expert, and where each row's goes; or none.
type rowWeights struct{ of, z, to pointer }

// plan lays out the rows of ids, and cuts them into tiles.
func (s *launches) plan(rows backend.Rows, ids pointer, backward bool, weights rowWeights) {
	l, tokens, groups, tiling := s.layer, rows.Tokens, s.Experts+1, s.tilingFor(rows.Tokens, backward)
	offsets := rows.Offsets.(*buffer)
	if s.err != nil {
		return
	}
	if tokens == 0 {
		s.err = l.Zero(offsets)
		return
	}
	if offsets.tiles == nil {
		offsets.tiles = &tileSet{}
	}
	p := planParams{ids: ids, offsets: offsets.at, token: i32(rows.Token), slot: i32(rows.Slot), row: i32(rows.Row),
		weights: weights.of, z: weights.z, weight: weights.to, tokens: l.count(tokens), experts: int32(l.Experts), slots: int32(l.TopK), shared: l.shared()}
	s.cut(&p, offsets.tiles, tiling, tokens)
	offsets.tiles.backward = backward
	defer func() {
		if s.err != nil {
			offsets.tiles.tiling = nil // a plan that failed is none
		}
	}()
	if tokens <= planOne {
		p.blockTokens = int32(ceil(tokens, 32) * 32)
		room := 4 * groups * (ceil(tokens, 32) + 1)
		run(s, image.PlanOneI32, [3]int{1}, planThreads, room, &p)
		s.otherwise(&p, offsets.tiles, tokens, image.PlanOneI32, room)
		return
	}
	blocks := ceil(tokens, planBlock)
	p.blockTokens = planBlock
	p.counts = s.scratch(&l.counts, 4*(blocks+1)*groups)
	bits := 4 * groups * planBlock / 32
	run(s, image.PlanCountI32, [3]int{blocks}, countThreads, bits, &p)
	if blocks <= planAdds {
		p.adds = 1
	} else {
		run(s, image.PlanAddI32, [3]int{ceil(groups, 8)}, 256, 0, &p)
	}
	run(s, image.PlanLayI32, [3]int{1}, planThreads, 0, &p)
	p.adds = 0
	run(s, image.PlanPlaceI32, [3]int{blocks}, countThreads, bits, &p)
	s.otherwise(&p, offsets.tiles, tokens, image.PlanLayI32, 0)
}

// cut has a plan make a set of tiles.
func (s *launches) cut(p *planParams, t *tileSet, tiling *Tiling, tokens int) {
	l := s.layer
	s.scratch(&t.scratch, tileBytes*(1+tiling.Cluster*(l.Experts+1)+ceil(tokens*(l.TopK+1), tiling.Most)+tiling.Cluster*l.gpu.Processors))
	t.tiling = tiling
	p.tiles, p.tileCount = t.list(), t.count()
	p.tileMost, p.tileStep, p.tileCluster = int32(tiling.Most), int32(tiling.Step), int32(tiling.Cluster)
}

// otherwise cuts the same rows by the set's other tiling, where it has one, by the kernel that lays tiles.
func (s *launches) otherwise(p *planParams, t *tileSet, tokens, kernel, room int) {
	if other := t.tiling.Other; other == nil || other.tilesAlike(t.tiling) {
		return
	}
	if t.other == nil {
		t.other = &tileSet{backward: t.backward}
	}
	s.cut(p, t.other, t.tiling.Other, tokens)
	run(s, kernel, [3]int{1}, planThreads, room, p)
}
