// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bench

import (
	"sync"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
)

// gradients are accumulators that are used from run to run.
type gradients struct {
	stream  *samebit.Gradients
	sums    [][]float32      // the matrices of the stream's accumulators
	rounded [][]samebit.BF16 // as sums; made when first asked for
	workers int
}

func newGradients(l *samebit.Layer, workers int) (*gradients, error) {
	s := l.Shape()
	into := s.NewGradients()
	stream, err := l.NewGradients(into)
	if err != nil {
		return nil, err
	}
	g := &gradients{stream: stream, workers: workers}
	for _, p := range parts(s) {
		g.sums = append(g.sums, *p.InGradients(into))
	}
	return g, nil
}

// bytes is the memory of the accumulators, and of what they are rounded to.
func (g *gradients) bytes() (n int64) {
	if g == nil {
		return 0
	}
	for _, s := range g.sums {
		n += 4 * int64(len(s))
	}
	for _, r := range g.rounded {
		n += 2 * int64(len(r))
	}
	return n
}

// clear sets the accumulators to +0, and makes room to round them if asked to.
func (g *gradients) clear(round bool) {
	if round && g.rounded == nil {
		for _, s := range g.sums {
			g.rounded = append(g.rounded, make([]contract.BF16, len(s)))
		}
	}
	g.each(func(i int) { clear(g.sums[i]) })
}

// round is the one cast of all gradients (R11). What is rounded is set to +0 while it is in the cache.
func (g *gradients) round() {
	g.each(func(i int) {
		const block = 4096
		dst, src := g.rounded[i], g.sums[i]
		for from := 0; from < len(src); from += block {
			to := min(from+block, len(src))
			if err := samebit.Round(dst[from:to], src[from:to]); err != nil {
				panic(err) // the lengths are equal
			}
			clear(src[from:to])
		}
	})
}

// each calls do for every matrix, on all workers.
func (g *gradients) each(do func(matrix int)) {
	var wg sync.WaitGroup
	for w := range g.workers {
		wg.Go(func() {
			for i := w; i < len(g.sums); i += g.workers {
				do(i)
			}
		})
	}
	wg.Wait()
}
