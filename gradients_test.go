// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
)

// elsewhere is a backend that, as a GPU's does, has its memory elsewhere.
type elsewhere struct {
	backend.Backend
}

// leftElsewhere is how many buffers of such backends were not given back.
var leftElsewhere int

func init() {
	backend.Register("elsewhere", func(o backend.Options) (backend.Backend, error) {
		b, err := backend.Open("cpu", o)
		return elsewhere{b}, err
	})
}

func (e elsewhere) Wrap(backend.Dtype, []byte) (backend.Buffer, error) {
	return nil, fmt.Errorf("elsewhere: %w", backend.ErrElsewhere)
}

func (e elsewhere) Alloc(d backend.Dtype, n int) (backend.Buffer, error) {
	leftElsewhere++
	return e.Backend.Alloc(d, n)
}

func (e elsewhere) Free(b backend.Buffer) {
	leftElsewhere--
	e.Backend.Free(b)
}

// newLayer is a layer on a backend, until the test ends.
func newLayer(t *testing.T, name string) *samebit.Layer {
	t.Helper()
	l, err := samebit.New(shape, &weights, samebit.Options{Backend: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// Gradients of a backend whose memory is elsewhere: what is in the caller's memory when the stream begins counts, what comes to it
// in between does not, and Flush writes it.
func TestGradientsElsewhere(t *testing.T) {
	before := leftElsewhere
	there, here := newLayer(t, "elsewhere"), newLayer(t, "cpu")
	tokens := func(g *samebit.Gradients, l *samebit.Layer, from, to int) {
		t.Helper()
		h := shape.Hidden
		out, err := l.Forward(x[from*h:to*h], samebit.Train)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Tape.Free()
		if _, err := l.Backward(out.Tape, dy[from*h:to*h], g); err != nil {
			t.Fatal(err)
		}
	}
	flush := func(g *samebit.Gradients) {
		t.Helper()
		if err := g.Flush(); err != nil {
			t.Fatal(err)
		}
	}

	memory := map[*samebit.Layer][]float32{there: make([]float32, shape.Size()), here: make([]float32, shape.Size())}
	fold := map[*samebit.Layer]*samebit.Gradients{}
	for l, v := range memory {
		g, err := l.NewGradients(shape.GradientsIn(v))
		if err != nil {
			t.Fatal(err)
		}
		fold[l] = g
	}
	for round, start := range []float32{3, -1e10, 0} {
		cut, end := 40, 50
		if start == 0 {
			cut, end = 2, 3 // so few that there are experts without any, whose gradients are +0
		}
		for l, v := range memory {
			for i := range v {
				v[i] = start
			}
			tokens(fold[l], l, 0, cut)
			if l == there {
				for i := range v {
					v[i] = float32(math.NaN())
				}
			}
			tokens(fold[l], l, cut, end)
			flush(fold[l])
		}
		sameBits(t, fmt.Sprintf("round %d: FP32 gradients", round), memory[there], memory[here])
		was := slices.Clone(memory[there])
		was[5], memory[there][5] = 7, 7
		flush(fold[there]) // of a stream without a Backward: nothing is touched
		sameBits(t, fmt.Sprintf("round %d: after an empty Flush", round), memory[there], was)
	}

	have, err := there.NewBF16Gradients(nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := here.NewBF16Gradients(nil)
	if err != nil {
		t.Fatal(err)
	}
	for round, n := range []int{100, 0, 33} {
		have.BF16().Router[3] = 0x7FC0
		tokens(have, there, 0, n)
		tokens(want, here, 0, n)
		flush(have)
		flush(want)
		eachMatrix(want.BF16(), func(name string, of func(*contract.Weights) []samebit.BF16) {
			sameBits(t, fmt.Sprintf("round %d: BF16 gradients of %s", round, name), of(have.BF16()), of(want.BF16()))
		})
	}
	for _, g := range []*samebit.Gradients{have, fold[there]} {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if left := leftElsewhere - before; left != 0 {
		t.Errorf("%d buffers were not given back", left)
	}
}

// eachMatrix calls do for every matrix that weights like w have.
func eachMatrix(w *contract.Weights, do func(name string, of func(*contract.Weights) []samebit.BF16)) {
	do("router", func(w *contract.Weights) []samebit.BF16 { return w.Router })
	do("the shared gate", func(w *contract.Weights) []samebit.BF16 { return w.SharedGate })
	for e := range len(w.Experts) + 1 {
		name, expert := "the shared expert", func(w *contract.Weights) *contract.Expert { return w.Shared }
		if e < len(w.Experts) {
			name, expert = fmt.Sprintf("expert %d", e), func(w *contract.Weights) *contract.Expert { return &w.Experts[e] }
		}
		do(name+" gate", func(w *contract.Weights) []samebit.BF16 { return expert(w).Gate })
		do(name+" up", func(w *contract.Weights) []samebit.BF16 { return expert(w).Up })
		do(name+" down", func(w *contract.Weights) []samebit.BF16 { return expert(w).Down })
	}
}

// Closed gradients are refused by name, and the layer goes on.
func TestClosedGradients(t *testing.T) {
	l := newLayer(t, "cpu")
	g, err := l.NewGradients(nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	h := shape.Hidden
	out, err := l.Forward(x[:h], samebit.Train)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Tape.Free()
	const want = "the gradients are closed"
	if _, err := l.Backward(out.Tape, dy[:h], g); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("backward: got %v, want %q", err, want)
	}
	if err := g.Flush(); err == nil || err.Error() != want {
		t.Errorf("flush: got %v, want %q", err, want)
	}
	if _, err := l.Backward(out.Tape, dy[:h], nil); err != nil {
		t.Error(err)
	}
}
