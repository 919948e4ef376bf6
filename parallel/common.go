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
// makes a part of them, some columns of H and of the shared expert's I: for the tokens of all ranks it gets that part of x and dy, of
// dg, du and bf16(h*w), and all of the small rest. What is no number of I's, the router and the shared gate, is made by the ranks of
// every part of I, and those of the first give it.
type common struct {
	*layer
	fold   backend.Fold
	pieces []piece   // of the router, the shared gate, and the shared expert's three
	of     [][]block // each piece's blocks on every rank of the row
}

func (l *layer) newCommon(w *work, g *backend.Gradients) *common {
	c := &common{layer: l}
	dtype := g.Router.Dtype()
	below := &backend.Gradients{Router: c.everywhere(w, g.Router, l.Experts)}
	for range l.Experts { // of width 0
		none := w.alloc(dtype, 0)
		below.Experts = append(below.Experts, backend.ExpertGradient{Gate: none, Up: none, Down: none})
	}
	if l.shared != nil {
		below.SharedGate = c.everywhere(w, g.SharedGate, 1)
		if width := l.part.Shared.Len(); width > 0 {
			rows := func(p commonPart) block { return block{p.width, p.hidden} }
			columns := func(p commonPart) block { return block{p.hidden, p.width} }
			below.Shared = &backend.ExpertGradient{Gate: c.piece(w, g.Shared.Gate, width, l.Hidden, rows),
				Up: c.piece(w, g.Shared.Up, width, l.Hidden, rows), Down: c.piece(w, g.Shared.Down, l.Hidden, width, columns)}
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

// piece is this rank's block of one of the caller's gradients [rows,n].
func (c *common) piece(w *work, whole backend.Buffer, rows, n int, blockOf func(commonPart) block) backend.Buffer {
	var of []block
	for _, p := range c.common {
		of = append(of, blockOf(p))
	}
	p := w.newPiece(whole, rows, n, of[c.ep])
	c.pieces, c.of = append(c.pieces, p), append(c.of, of)
	return p.part
}

// everywhere is this rank's part of a gradient [rows,H] that has no number of I's.
func (c *common) everywhere(w *work, whole backend.Buffer, rows int) backend.Buffer {
	part := c.piece(w, whole, rows, c.Hidden, func(p commonPart) block { return block{contract.Range{To: rows}, p.hidden} })
	of := c.of[len(c.of)-1]
	for q, p := range c.common {
		if p.width.From > 0 { // another gives it
			of[q] = block{}
		}
	}
	return part
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
	n := total(counts)
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
	for q, p := range c.common {
		send[q], sizes[q] = columnsOf(mine, c.Hidden, p.hidden), counts[q]*c.tail.columns.Len()
	}
	return c.cross(w, send, sizes)
}

// cross sends rows to each rank, and gives those of all in the order of the stream.
func (c *common) cross(w *work, send [][]BF16, sizes []int) []BF16 {
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

// sharedGradients are dg, du and bf16(h*w) of the shared expert's rows of all ranks, of this rank's part of I.
func (c *common) sharedGradients(w *work, b *visitBackward, counts []int, live int) (all [3][]BF16) {
	width, part := c.part.Shared.Len(), c.common[c.ep].width.Len()
	for i, field := range []func(backend.RowGradients) backend.Buffer{
		func(g backend.RowGradients) backend.Buffer { return g.DGate },
		func(g backend.RowGradients) backend.Buffer { return g.DUp },
		func(g backend.RowGradients) backend.Buffer { return g.HW },
	} {
		if width == 0 { // the shell's one column
			all[i] = make([]BF16, total(counts))
			continue
		}
		var mine []BF16
		if b.n > 0 {
			mine = b.share(w, func(block int) backend.Buffer { return field(b.grads[block]) })[:live*width]
		}
		send, sizes := make([][]BF16, len(counts)), make([]int, len(counts))
		for q, p := range c.common {
			send[q], sizes[q] = columnsOf(mine, width, p.width), counts[q]*part
		}
		all[i] = c.cross(w, send, sizes)
	}
	return all
}

func total(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// pick gives some rows of a matrix of n columns.
func pick[T any](m []T, rows []int, n int) []T {
	picked := make([]T, 0, len(rows)*n)
	for _, r := range rows {
		picked = append(picked, row(m, r, n)...)
	}
	return picked
}
