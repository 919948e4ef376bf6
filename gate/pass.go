// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
)

// BF16 is a bfloat16 number, kept as its 16 bits.
type BF16 = contract.BF16

// work is tokens to run, and how.
type work struct {
	x, dy     []BF16  // [T,H]; dy nil for a forward alone
	replay    []int32 // [T,K], or nil
	cuts      []int   // the sizes of the calls, one after the other, that the tokens are cut into; nil for one call
	infer     bool    // without a tape
	gradients bool    // of the weights too
}

// pass is all that a layer gives for the tokens of a work. Token results are as of one call, however the tokens were cut.
type pass struct {
	contract.Shape
	y, dx           []BF16    // [T,H]
	logits, weights []float32 // [T,E], [T,K]
	ids             []int32   // [T,K]
	rejected        []int     // of each call that rejected tokens how many, and which first
	refused         bool      // a call gave a RejectedError
	grads           *contract.Gradients
}

// run gives the pass of one rank. A panic of the layer is an error, and that of ranks which would wait for it too.
func run(l Member, w work) (p pass, err error) {
	defer func() {
		if e := recover(); e != nil {
			err = fmt.Errorf("panic: %v\n%s", e, debug.Stack())
		}
		if err != nil && l.Rank != nil {
			l.Rank.Group.Abort(err)
		}
	}()
	s := l.Shape()
	p.Shape = s
	var stream *samebit.Gradients
	if w.gradients {
		if stream, err = l.NewGradients(nil); err != nil {
			return p, err
		}
		defer stream.Close()
	}
	cuts := w.cuts
	if cuts == nil {
		cuts = []int{len(w.x) / s.Hidden}
	}
	from := 0
	for _, n := range cuts {
		if err := p.call(l, w, from, from+n, stream); err != nil {
			return p, err
		}
		from += n
	}
	if stream == nil {
		return p, nil
	}
	if err := stream.Flush(); err != nil {
		return p, err
	}
	p.grads, err = l.gradients(stream.FP32())
	return p, err
}

// call adds the tokens from one to another, in one forward and one backward: those of the rank's column, which all ranks then get.
func (p *pass) call(l Member, w work, start, end int, stream *samebit.Gradients) error {
	counts := l.columns(end - start)
	from, to := l.column(counts)
	from, to = start+from, start+to
	var options []samebit.ForwardOption
	if w.dy != nil && !w.infer {
		options = append(options, samebit.Train)
	}
	if w.replay != nil {
		options = append(options, samebit.Replay(w.replay[from*p.TopK:to*p.TopK]))
	}
	out, err := l.Forward(w.x[from*p.Hidden:to*p.Hidden], options...)
	var bad *samebit.RejectedError
	if err != nil && !(errors.As(err, &bad) && out != nil) {
		return err
	}
	defer out.Tape.Free()
	rejected := []int{out.Rejected.Tokens, from + out.Rejected.First, 0}
	if bad != nil {
		rejected[2] = 1
	}
	err = errors.Join(
		appendAll(l, &p.y, out.Y, counts, p.Hidden),
		appendAll(l, &p.logits, out.Logits, counts, p.Experts),
		appendAll(l, &p.ids, out.IDs, counts, p.TopK),
		appendAll(l, &p.weights, out.Weights, counts, p.TopK),
		p.reject(l, rejected, len(counts)),
	)
	if err != nil || w.dy == nil || w.infer {
		return err
	}
	dx, err := l.Backward(out.Tape, w.dy[from*p.Hidden:to*p.Hidden], stream)
	if err != nil {
		return err
	}
	return appendAll(l, &p.dx, dx, counts, p.Hidden)
}

// appendAll appends the rows of all columns.
func appendAll[T any](l Member, to *[]T, rows []T, counts []int, n int) error {
	all, err := gathered(l, rows, counts, n)
	*to = append(*to, all...)
	return err
}

// reject notes the tokens that a call has rejected: how many in each column, the first, and whether the call gave an error.
func (p *pass) reject(l Member, mine []int, columns int) error {
	all, err := gathered(l, mine, slices.Repeat([]int{1}, columns), len(mine))
	total, first := 0, 0
	for ; len(all) > 0; all = all[len(mine):] {
		if all[0] == 0 {
			continue
		}
		if total == 0 {
			first = all[1]
		}
		total += all[0]
		p.refused = p.refused || all[2] > 0
	}
	if total > 0 {
		p.rejected = append(p.rejected, total, first)
	}
	return err
}

// runAll gives the passes of all ranks, which run at the same time.
func runAll(ranks []Member, w work) ([]pass, error) {
	passes, errs := make([]pass, len(ranks)), make([]error, len(ranks))
	var group sync.WaitGroup
	for i, l := range ranks {
		group.Go(func() { passes[i], errs[i] = run(l, w) })
	}
	group.Wait()
	return passes, errors.Join(errs...)
}

// take gives the pass of some of its tokens; the weights' gradients are of all of them.
func (p pass) take(tokens []int) pass {
	p.y, p.dx = take(p.y, p.Hidden, tokens), take(p.dx, p.Hidden, tokens)
	p.logits, p.weights, p.ids = take(p.logits, p.Experts, tokens), take(p.weights, p.TopK, tokens), take(p.ids, p.TopK, tokens)
	return p
}

// take gives some rows of a matrix of n columns, nil of nil.
func take[T any](m []T, n int, rows []int) []T {
	if m == nil {
		return nil
	}
	taken := make([]T, 0, len(rows)*n)
	for _, r := range rows {
		taken = append(taken, m[r*n:(r+1)*n]...)
	}
	return taken
}
