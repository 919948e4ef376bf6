// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
	"github.com/samebit/samebit/internal/ui"
	"github.com/samebit/samebit/parallel"
)

// worker has the layer of a run on one rank, or whole.
type worker struct {
	*runCommand
	env   *env
	rank  *parallel.Rank // nil for a layer that is whole
	first bool           // it shows progress, and has the results of all
	layer *samebit.Layer

	tokens int
	results
	forward, backward float64 // seconds
}

// results are those of all tokens; dx and gradients, of one type, where there was a backward.
type results struct {
	*samebit.Output
	dx   []samebit.BF16
	fp32 *contract.Gradients
	bf16 *contract.Weights
}

// progress is shown by one worker.
func (w *worker) progress(name string) *ui.Progress {
	if !w.first {
		return ui.NewProgress(io.Discard, name)
	}
	return w.env.progress(name)
}

// open loads the layer, on a rank this one's part of it.
func (w *worker) open() error {
	o := w.options()
	progress := w.progress("loading weights")
	defer progress.Close()
	o.Progress, o.Device = progress.Set, w.env.device
	if w.rank != nil {
		o.Ranks = w.rank
	}
	var err error
	w.layer, err = samebit.Open(w.Checkpoint, w.Layer, o)
	return err
}

// run runs the tokens of a file, a micro-batch a call.
func (w *worker) run(file *safetensors.File) error {
	in, err := w.read(file, w.layer.Shape())
	if err != nil {
		return err
	}
	w.tokens = in.tokens
	if err := w.env.alike(w.rank, "inputs", in.digest()); err != nil {
		return err
	}
	var stream *samebit.Gradients
	if w.Backward {
		if stream, err = w.gradients(); err != nil {
			return err
		}
		defer stream.Close()
	}
	progress := w.progress("running tokens")
	defer progress.Close()
	size := w.MicroBatch
	if size == 0 {
		size = max(in.tokens, 1)
	}
	for from := 0; from == 0 || from < in.tokens; from += size { // no tokens are one call, too
		to := min(from+size, in.tokens)
		if err := w.call(in, from, to, stream); err != nil {
			return err
		}
		progress.Set(int64(to), int64(in.tokens))
	}
	if stream == nil {
		return nil
	}
	if err := timed(&w.backward, stream.Flush); err != nil {
		return err
	}
	return w.whole(stream)
}

// digest is of what was read: what a column takes of a file no other column can check later.
func (in *inputs) digest() string {
	h := sha256.New()
	for _, data := range [][]byte{host.Bytes(in.x), host.Bytes(in.dy), host.Bytes(in.replay)} {
		h.Write(data)
	}
	return fmt.Sprintf("--in of %d tokens, digest %x", in.tokens, h.Sum(nil)[:8])
}

func (w *worker) gradients() (*samebit.Gradients, error) {
	if w.GradDtype == "bf16" {
		return w.layer.NewBF16Gradients(nil)
	}
	return w.layer.NewGradients(nil)
}

// whole puts the ranks' gradients together, on the first rank.
func (w *worker) whole(stream *samebit.Gradients) (err error) {
	w.fp32, w.bf16 = stream.FP32(), stream.BF16()
	switch {
	case w.rank == nil:
	case w.bf16 != nil:
		w.bf16, err = parallel.GatherWeights(w.rank, w.bf16, w.layer.Shape(), 0)
	default:
		w.fp32, err = parallel.GatherGradients(w.rank, w.fp32, w.layer.Shape(), 0)
	}
	return err
}

// call runs one micro-batch, the tokens from one to another: of these a rank has its column's.
func (w *worker) call(all *inputs, from, to int, stream *samebit.Gradients) error {
	columns, mine := []contract.Range{{From: from, To: to}}, 0
	if w.rank != nil {
		columns, mine = w.rank.Grid.Columns(from, to), w.rank.Column()
	}
	at := columns[mine]
	in := all.slice(at.From, at.To)
	failed := func(err error) error {
		if f, is := errors.AsType[*parallel.Failed](err); at.Len() == 0 || is && f.Rank != w.rank.Group.Rank() {
			return fmt.Errorf("tokens %d to %d of all ranks: %w", from, to-1, err)
		}
		return fmt.Errorf("tokens %d to %d: %w", at.From, at.To-1, err)
	}
	var options []samebit.ForwardOption
	if w.Backward {
		options = append(options, samebit.Train)
	}
	if w.Replay {
		options = append(options, samebit.Replay(in.replay))
	}
	var out *samebit.Output
	err := timed(&w.forward, func() (err error) {
		out, err = w.layer.Forward(in.x, options...)
		return err
	})
	if err != nil {
		return failed(err)
	}
	defer out.Tape.Free()
	if err := w.add(out, at.From, columns); err != nil || !w.Backward {
		return err
	}
	var dx []samebit.BF16
	err = timed(&w.backward, func() (err error) {
		dx, err = w.layer.Backward(out.Tape, in.dy, stream)
		return err
	})
	if err != nil {
		return failed(err)
	}
	return appendAll(w, &w.dx, dx, columns, in.hidden)
}

// add puts a call's output, of all columns, behind those before it; from is the first token of this rank's column.
func (w *worker) add(out *samebit.Output, from int, columns []contract.Range) error {
	if w.Output == nil {
		begun := *out
		begun.Y, begun.Logits, begun.IDs, begun.Weights, begun.Rejected.Tokens = nil, nil, nil, nil, 0
		w.Output = &begun
	}
	s, each := w.layer.Shape(), make([]contract.Range, len(columns))
	for i := range each {
		each[i] = contract.Range{From: i, To: i + 1}
	}
	rejected, err := gathered(w, []int{out.Rejected.Tokens, from + out.Rejected.First}, each, 2)
	for i := 0; i < len(rejected); i += 2 {
		if w.Rejected.Tokens == 0 {
			w.Rejected.First = rejected[i+1]
		}
		w.Rejected.Tokens += rejected[i]
	}
	return errors.Join(err,
		appendAll(w, &w.Y, out.Y, columns, s.Hidden),
		appendAll(w, &w.Logits, out.Logits, columns, s.Experts),
		appendAll(w, &w.IDs, out.IDs, columns, s.TopK),
		appendAll(w, &w.Weights, out.Weights, columns, s.TopK),
	)
}

// appendAll appends the rows of all columns, of n elements each, where they are wanted.
func appendAll[T any](w *worker, to *[]T, rows []T, columns []contract.Range, n int) error {
	all, err := gathered(w, rows, columns, n)
	if w.first {
		*to = append(*to, all...)
	}
	return err
}

// gathered gives the rows of all columns, of n elements each.
func gathered[T any](w *worker, rows []T, columns []contract.Range, n int) ([]T, error) {
	if w.rank == nil {
		return rows, nil
	}
	var counts []int
	for _, c := range columns {
		counts = append(counts, c.Len()*n)
	}
	return parallel.GatherRows(w.rank, rows, counts)
}

// timed adds the seconds that do takes.
func timed(seconds *float64, do func() error) error {
	start := time.Now()
	err := do()
	*seconds += time.Since(start).Seconds()
	return err
}
