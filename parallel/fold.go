// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"errors"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
)

// fold is R10's sums and R11. The gradients of an expert are made where it is. Those of what every rank has, the router, the shared
// gate and the shared expert, are sums over the tokens of all ranks: see common.
type fold struct {
	*layer
	number  int // among the layer's
	dtype   backend.Dtype
	kept    *work
	blocks  []blockFold
	common  *common
	running bool // a stream has begun
}

// blockFold is the fold of one inner slice of the experts that this rank owns.
type blockFold struct {
	fold    backend.Fold
	columns []piece // down's gradients, where they are columns of the caller's
}

// NewFold starts a stream. An expert's gradients are made in place, but for down's where a rank's share of I is several blocks;
// these, and what every rank has, are read when the stream starts and written by Flush.
func (l *layer) NewFold(g *backend.Gradients) (backend.Fold, error) {
	f := &fold{layer: l, number: l.folds + 1, dtype: g.Router.Dtype(), kept: l.newWork()}
	for i := range l.routed.inner {
		f.blocks = append(f.blocks, f.newBlock(g, i))
	}
	f.common = l.newCommon(f.kept, g)
	if *f.kept.err != nil {
		f.kept.close()
		return nil, *f.kept.err
	}
	l.folds++
	return f, nil
}

func (f *fold) newBlock(g *backend.Gradients, i int) (b blockFold) {
	s, w, dtype := f.routed, f.kept, g.Router.Dtype()
	at, share := s.inner[i].within(f.part.Width), f.part.Width.Len()
	// A layer of a token an expert has a router; no gradient of it is wanted.
	below := &backend.Gradients{Router: w.zeros(dtype, s.experts*f.Hidden)}
	for e := f.part.Experts.From; e < f.part.Experts.To; e++ {
		to := g.Experts[e]
		x := backend.ExpertGradient{
			Gate: w.of(to.Gate.Slice(at.From*f.Hidden, at.To*f.Hidden)),
			Up:   w.of(to.Up.Slice(at.From*f.Hidden, at.To*f.Hidden)),
			Down: w.of(to.Down),
		}
		if at.Len() < share {
			p := w.newPiece(to.Down, f.Hidden, share, block{contract.Range{To: f.Hidden}, at})
			x.Down, b.columns = p.part, append(b.columns, p)
		}
		below.Experts = append(below.Experts, x)
	}
	w.run(func() (err error) {
		b.fold, err = s.inner[i].layer.NewFold(below)
		return err
	})
	return b
}

// Add folds in the rows that came from all ranks.
func (f *fold) Add(a backend.FoldArgs) error {
	j := backwardOf(a.Rows)
	if f.start(); *f.kept.err != nil {
		return *f.kept.err
	}
	w := j.brief()
	defer w.close()
	if b := j.routed; b.n > 0 {
		none := w.zeros(backend.FP32, b.n)
		for i := range f.blocks {
			w.run(func() error {
				return f.blocks[i].fold.Add(backend.FoldArgs{X: b.x, DY: b.dy, Rows: b.rows, RoutedGrad: b.grads[i], IDs: b.ids, DLogits: none})
			})
		}
	}
	f.common.add(w, j, a)
	return *w.err
}

// Flush finishes the stream on all ranks, which must all call it.
func (f *fold) Flush() error {
	about := struct{ Layer, Gradients int }{f.layer.number, f.number}
	if err := f.agree("flush", about, nil); err != nil {
		return err
	}
	if !f.running && f.dtype == backend.FP32 {
		return nil // the caller's values stay, which no one has read
	}
	f.running = false
	w := f.kept
	for _, b := range f.blocks {
		w.run(b.fold.Flush)
		for i := range b.columns {
			b.columns[i].write(w)
		}
	}
	f.common.flush(w)
	return *w.err
}

// start reads what has memory of its own where a stream begins, and compares it where other ranks have it too: each works on a part
// of it, and a difference would be in some of the sums. BF16 begins with nothing, and Flush writes it all.
func (f *fold) start() {
	if f.running {
		return
	}
	f.running = true
	if f.dtype != backend.FP32 {
		return
	}
	for _, b := range f.blocks {
		for i := range b.columns {
			b.columns[i].read(f.kept)
		}
	}
	router, shared := f.common.read(f.kept)
	f.kept.run(func() error { return f.agreeShares("gradients", router, shared, nil) })
}

// Close gives back what the stream holds.
func (f *fold) Close() error {
	var errs []error
	for _, b := range f.blocks {
		errs = append(errs, b.fold.Close())
	}
	errs = append(errs, f.common.fold.Close())
	f.kept.close()
	return errors.Join(errs...)
}
