// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"errors"
	"fmt"
	"runtime/debug"
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
	rejected        []int     // the tokens that calls named as the first of theirs, and how many they counted
	grads           *contract.Gradients
}

// run gives the pass of one rank. A panic of the layer is an error.
func run(l *samebit.Layer, w work) (p pass, err error) {
	defer func() {
		if e := recover(); e != nil {
			err = fmt.Errorf("panic: %v\n%s", e, debug.Stack())
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
		p.grads = stream.FP32()
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
	if stream != nil {
		err = stream.Flush()
	}
	return p, err
}

// call adds the tokens from one to another, in one forward and one backward.
func (p *pass) call(l *samebit.Layer, w work, from, to int, stream *samebit.Gradients) error {
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
	if n := out.Rejected.Tokens; n > 0 {
		p.rejected = append(p.rejected, n, from+out.Rejected.First)
	}
	p.y = append(p.y, out.Y...)
	p.logits = append(p.logits, out.Logits...)
	p.ids = append(p.ids, out.IDs...)
	p.weights = append(p.weights, out.Weights...)
	if w.dy == nil || w.infer {
		return nil
	}
	dx, err := l.Backward(out.Tape, w.dy[from*p.Hidden:to*p.Hidden], stream)
	p.dx = append(p.dx, dx...)
	return err
}

// runAll gives the passes of all ranks, which run at the same time.
func runAll(ranks []*samebit.Layer, w work) ([]pass, error) {
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
