// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
)

// common is the fold of the gradients that all expert-parallel ranks have: of the router, the shared gate and the shared expert.
// They are sums over the tokens of all ranks, in the order of the stream, and no rank may add another's sum to its own. So each rank
// makes those of its share of H: for the tokens of all ranks it gets that share of x and dy, and all of the small rest.
type common struct {
	*layer
	fold   backend.Fold
	pieces []piece            // of the router, the shared gate, and the shared expert's three
	of     [][]contract.Range // each piece's columns on every rank of the row
}

func (l *layer) newCommon(w *work, g *backend.Gradients) *common {
	c := &common{layer: l}
	dtype := g.Router.Dtype()
	below := &backend.Gradients{Router: c.piece(w, g.Router, l.Experts, 1)}
	for range l.Experts { // of width 0
		none := w.alloc(dtype, 0)
		below.Experts = append(below.Experts, backend.ExpertGradient{Gate: none, Up: none, Down: none})
	}
	if l.shared != nil {
		below.SharedGate = c.piece(w, g.SharedGate, 1, 1)
		width := l.part.Shared.Len()
		if width > 0 {
			below.Shared = &backend.ExpertGradient{
				Gate: c.piece(w, g.Shared.Gate, width, 1), Up: c.piece(w, g.Shared.Up, width, 1), Down: c.piece(w, g.Shared.Down, 1, width)}
		} else { // the shell's one column
			zeros := func() backend.Buffer { return w.zeros(dtype, l.tail.columns.Len()) }
			below.Shared = &backend.ExpertGradient{Gate: zeros(), Up: zeros(), Down: zeros()}
		}
	}
	w.run(func() (err error) {
		c.fold, err = l.tail.layer.NewFold(below)
		return err
	})
	return c
}

// piece is this rank's share of H of one of the caller's gradients [rows,H*each].
func (c *common) piece(w *work, whole backend.Buffer, rows, each int) backend.Buffer {
	var of []contract.Range
	for _, r := range shares(c.Grid.EP, c.Hidden) {
		of = append(of, contract.Range{From: r.From * each, To: r.To * each})
	}
	p := w.newPiece(whole, rows, c.Hidden*each, of[c.ep])
	c.pieces, c.of = append(c.pieces, p), append(c.of, of)
	return p.part
}

// read begins a stream with the caller's values, and gives the checksums of those of the router and the shared gate, and of those of
// this rank's share of the shared expert.
func (c *common) read(w *work) (all, shared string) {
	for i := range c.pieces {
		s := fmt.Sprintf("%08x ", c.pieces[i].read(w))
		if i < 2 {
			all += s
		} else {
			shared += s
		}
	}
	return strings.TrimSpace(all), strings.TrimSpace(shared)
}

// flush finishes the sums, and gives them to all ranks.
func (c *common) flush(w *work) {
	defer c.sending("gradients")()
	w.run(c.fold.Flush)
	for i := range c.pieces {
		c.pieces[i].gather(w, c.owners, c.of[i])
	}
}

// add folds in the tokens of all ranks that take part in a backward.
func (c *common) add(w *work, j *journeyBackward, a backend.FoldArgs) {
	defer c.sending("fold")()
	tokens := j.plan.working()
	var live []int
	for t, none := range tokens {
		if none == 0 {
			live = append(live, t)
		}
	}
	var counts []int
	w.run(func() error {
		all, err := allGather(c.owners, []int32{int32(len(live))}, slices.Repeat([]int{1}, c.Grid.EP))
		for _, n := range all {
			counts = append(counts, int(n[0]))
		}
		return err
	})
	if *w.err != nil {
		return
	}
	n := 0
	for _, of := range counts {
		n += of
	}
	x, dy := c.columns(w, a.X, live, counts), c.columns(w, a.DY, live, counts)
	ids := fromAll[int32](c, w, a.IDs, c.TopK, live, counts)
	logits := c.Experts
	if c.NormTopK {
		logits = c.TopK
	}
	dlogits := fromAll[float32](c, w, a.DLogits, logits, live, counts)
	var dz []float32
	var grad [3][]BF16
	if c.shared != nil {
		dz = fromAll[float32](c, w, a.DZ, 1, live, counts)
		grad = c.sharedGradients(w, j.shared, counts, len(live))
	}
	if n == 0 || *w.err != nil {
		return
	}
	args := backend.FoldArgs{X: made(w, backend.BF16, x), DY: made(w, backend.BF16, dy), IDs: made(w, backend.I32, ids),
		DLogits: made(w, backend.FP32, dlogits)}
	none := w.alloc(backend.BF16, 0)
	args.RoutedGrad = backend.RowGradients{DGate: none, DUp: none, HW: none}
	if c.shared != nil {
		args.DZ = made(w, backend.FP32, dz)
		args.SharedGrad = backend.RowGradients{
			DGate: made(w, backend.BF16, grad[0]), DUp: made(w, backend.BF16, grad[1]), HW: made(w, backend.BF16, grad[2])}
	}
	slots := c.TopK + 1
	args.Rows = backend.Rows{Tokens: n, Slots: c.TopK, Shared: c.shared != nil, Offsets: w.alloc(backend.I32, c.Experts+2),
		Token: w.alloc(backend.I32, n*slots), Slot: w.alloc(backend.I32, n*slots), Row: w.alloc(backend.I32, n*slots)}
	w.run(func() error { return c.tail.layer.Plan(backend.Plan{IDs: args.IDs, Rows: args.Rows}) })
	w.run(func() error { return c.fold.Add(args) })
}

// columns gives this rank's share of H of some tokens' rows of m [T,H], those of all ranks in the order of the stream.
func (c *common) columns(w *work, m backend.Buffer, live, counts []int) []BF16 {
	mine := pick(get[BF16](w, w.of(m), m.Len()), live, c.Hidden)
	send, sizes := make([][]BF16, len(counts)), make([]int, len(counts))
	for q, r := range shares(c.Grid.EP, c.Hidden) {
		send[q], sizes[q] = columnsOf(mine, c.Hidden, r), counts[q]*c.tail.columns.Len()
	}
	var got [][]BF16
	w.run(func() (err error) {
		got, err = allToAll(c.owners, send, sizes)
		return err
	})
	return slices.Concat(got...)
}

// fromAll gives some tokens' rows of m [T,n], those of all ranks in the order of the stream.
func fromAll[T any](c *common, w *work, m backend.Buffer, n int, live, counts []int) []T {
	return gatherRows(c, w, pick(get[T](w, w.of(m), m.Len()), live, n), n, counts)
}

func gatherRows[T any](c *common, w *work, mine []T, n int, counts []int) []T {
	var got [][]T
	w.run(func() (err error) {
		sizes := make([]int, len(counts))
		for q := range sizes {
			sizes[q] = counts[q] * n
		}
		got, err = allGather(c.owners, mine, sizes)
		return err
	})
	return slices.Concat(got...)
}

// sharedGradients are dg, du and bf16(h*w) of the shared expert's rows of all ranks, of this rank's share of I.
func (c *common) sharedGradients(w *work, b *visitBackward, counts []int, live int) (all [3][]BF16) {
	width := c.part.Shared.Len()
	for i, field := range []func(backend.RowGradients) backend.Buffer{
		func(g backend.RowGradients) backend.Buffer { return g.DGate },
		func(g backend.RowGradients) backend.Buffer { return g.DUp },
		func(g backend.RowGradients) backend.Buffer { return g.HW },
	} {
		var mine []BF16
		if b.n > 0 {
			mine = b.share(w, func(block int) backend.Buffer { return field(b.grads[block]) })[:live*width]
		}
		if all[i] = gatherRows(c, w, mine, width, counts); width == 0 { // the shell's one column
			for _, n := range counts {
				all[i] = append(all[i], make([]BF16, n)...)
			}
		}
	}
	return all
}

// pick gives some rows of a matrix of n columns.
func pick[T any](m []T, rows []int, n int) []T {
	picked := make([]T, 0, len(rows)*n)
	for _, r := range rows {
		picked = append(picked, row(m, r, n)...)
	}
	return picked
}
