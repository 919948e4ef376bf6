// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
	"github.com/samebit/samebit/internal/testgen"
)

// A workspace gives the layer's bits: whole, in parts, and from a graph that reads the number of tokens as it runs. What lies
// behind the last token is left alone.
func TestWorkspace(t *testing.T) {
	s, err := testgen.Shape("mid")
	if err != nil {
		t.Fatal(err)
	}
	w := testgen.Weights(s, 1)
	l := openLayer(t, s, &w, samebit.Options{})
	const most = 300
	x := testgen.Tokens(most, s.Hidden, 2)
	want, err := l.Forward(x)
	if err != nil {
		t.Fatal(err)
	}
	for _, room := range []int{most, 1000, 64} {
		ws, err := l.NewWorkspace(room)
		if err != nil {
			t.Fatal(err)
		}
		q := ws.Queue()
		d := newDeviceTensors(t, q, s, x)
		if err := ws.Enqueue(d.Tensors, most); err != nil {
			t.Fatal(err)
		}
		d.check(fmt.Sprintf("workspace for %d", room), want, most)
		if room < most {
			if err := ws.Enqueue(samebit.Tensors{X: d.X, Y: d.Y, Count: q.Address(d.buffers["count"])}, most); err == nil {
				t.Error("more than the workspace's tokens, counted on the GPU, are no error")
			}
		} else {
			d.graph(ws, want)
		}
		if err := ws.Close(); err != nil {
			t.Error(err)
		}
	}
}

// deviceTensors are a forward's tensors on the GPU.
type deviceTensors struct {
	samebit.Tensors
	t       *testing.T
	q       backend.Queue
	s       contract.Shape
	buffers map[string]backend.Buffer
}

func newDeviceTensors(t *testing.T, q backend.Queue, s contract.Shape, x []samebit.BF16) *deviceTensors {
	d := &deviceTensors{t: t, q: q, s: s, buffers: map[string]backend.Buffer{}}
	n := len(x) / s.Hidden
	alloc := func(name string, to *uintptr, dtype backend.Dtype, n int) {
		b, err := q.Alloc(dtype, n)
		if err != nil {
			t.Fatal(err)
		}
		d.buffers[name], *to = b, q.Address(b)
	}
	alloc("x", &d.X, backend.BF16, len(x))
	alloc("y", &d.Y, backend.BF16, len(x))
	alloc("logits", &d.Logits, backend.FP32, n*s.Experts)
	alloc("ids", &d.IDs, backend.I32, n*s.TopK)
	alloc("weights", &d.Weights, backend.FP32, n*s.TopK)
	alloc("status", &d.Status, backend.I32, n)
	count := uintptr(0)
	alloc("count", &count, backend.I32, 1)
	if err := q.Write(d.buffers["x"], host.Bytes(x)); err != nil {
		t.Fatal(err)
	}
	return d
}

// check holds the first n tokens to what they must be.
func (d *deviceTensors) check(what string, want *samebit.Output, n int) {
	d.t.Helper()
	same(d, what, "y", want.Y, n*d.s.Hidden)
	same(d, what, "logits", want.Logits, n*d.s.Experts)
	same(d, what, "ids", want.IDs, n*d.s.TopK)
	same(d, what, "weights", want.Weights, n*d.s.TopK)
	same(d, what, "status", make([]int32, n), n)
}

func read[T any](d *deviceTensors, name string) []T {
	v := make([]T, d.buffers[name].Len())
	if err := d.q.Read(host.Bytes(v), d.buffers[name]); err != nil {
		d.t.Fatal(err)
	}
	return v
}

func same[T any](d *deviceTensors, what, name string, want []T, n int) {
	d.t.Helper()
	for i, v := range read[T](d, name)[:n] {
		if !sameBits([]T{v}, want[i:i+1]) {
			d.t.Errorf("%s, %s: element %d is %v, want %v", what, name, i, v, want[i])
			return
		}
	}
}

// sameBits compares bits, so that -0 is not +0.
func sameBits[T any](a, b []T) bool { return bytes.Equal(host.Bytes(a), host.Bytes(b)) }

// graph replays a captured forward at several numbers of tokens.
func (d *deviceTensors) graph(ws *samebit.Workspace, want *samebit.Output) {
	d.t.Helper()
	d.Count = d.q.Address(d.buffers["count"])
	most := len(want.Y) / d.s.Hidden
	g, err := d.q.Capture(func() error { return ws.Enqueue(d.Tensors, most) })
	if err != nil {
		d.t.Fatal(err)
	}
	for _, n := range []int{most, 0, 1, 130, most - 1} {
		if err := errors.Join(d.q.Zero(d.buffers["y"]), d.q.Write(d.buffers["count"], host.Bytes([]int32{int32(n)})), g.Replay()); err != nil {
			d.t.Fatal(err)
		}
		d.check(fmt.Sprintf("a graph of %d, replayed at %d", most, n), want, n)
		for i, v := range read[samebit.BF16](d, "y")[n*d.s.Hidden:] {
			if v != 0 {
				d.t.Errorf("a graph replayed at %d tokens: element %d behind the last is %04X, want it left alone", n, i, v)
				return
			}
		}
	}
	if err := g.Close(); err != nil {
		d.t.Error(err)
	}
}

// A graph goes on with weights that were changed in place and refreshed.
func TestGraphAfterRefresh(t *testing.T) {
	s, err := testgen.Shape("tiny")
	if err != nil {
		t.Fatal(err)
	}
	w := testgen.Weights(s, 1)
	l := openLayer(t, s, &w, samebit.Options{})
	const n = 100
	x := testgen.Tokens(n, s.Hidden, 2)
	ws, err := l.NewWorkspace(n)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	d := newDeviceTensors(t, ws.Queue(), s, x)
	g, err := ws.Queue().Capture(func() error { return ws.Enqueue(d.Tensors, n) })
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	other := testgen.Weights(s, 2)
	for e, x := range other.Experts {
		copy(w.Experts[e].Gate, x.Gate)
		copy(w.Experts[e].Down, x.Down)
	}
	copy(w.Router, other.Router)
	if err := errors.Join(l.Refresh(), g.Replay()); err != nil {
		t.Fatal(err)
	}
	cpu, err := samebit.New(s, &w, samebit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cpu.Close()
	want, err := cpu.Forward(x)
	if err != nil {
		t.Fatal(err)
	}
	d.check("after a refresh", want, n)
}

// A training workspace gives the CPU's dx and gradients, of two micro-batches, in both types.
func TestTrainingWorkspace(t *testing.T) {
	s, err := testgen.Shape("mid")
	if err != nil {
		t.Fatal(err)
	}
	w := testgen.Weights(s, 1)
	l := openLayer(t, s, &w, samebit.Options{})
	const n, cut = 300, 170
	h := s.Hidden
	x, dy := testgen.Tokens(n, h, 2), testgen.Upstream(n, h, 3)
	wantDX, want := onCPU(t, s, &w, x, dy)
	ws, err := l.NewTrainingWorkspace(200)
	if err != nil {
		t.Fatal(err)
	}
	q := ws.Queue()
	for _, dtype := range []backend.Dtype{backend.FP32, backend.BF16} {
		g := newDeviceGradients(t, ws, s, dtype)
		for _, part := range [][2]int{{0, cut}, {cut, n}} {
			from, to := part[0]*h, part[1]*h
			in, up := newDeviceTensors(t, q, s, x[from:to]), newDeviceTensors(t, q, s, dy[from:to])
			if err := errors.Join(ws.Enqueue(in.Tensors, part[1]-part[0]), ws.EnqueueBackward(up.X, up.Y, g.stream)); err != nil {
				t.Fatal(err)
			}
			same(up, fmt.Sprintf("tokens %d to %d", part[0], part[1]), "y", wantDX[from:to], to-from)
		}
		if err := g.stream.Flush(); err != nil {
			t.Fatal(err)
		}
		g.check(want)
		if err := g.stream.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := ws.Close(); err != nil {
		t.Error(err)
	}
}

// onCPU is dx and the gradients, matrix by matrix.
func onCPU(t *testing.T, s contract.Shape, w *contract.Weights, x, dy []samebit.BF16) ([]samebit.BF16, [][]float32) {
	cpu, err := samebit.New(s, w, samebit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cpu.Close()
	g, err := cpu.NewGradients(nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := cpu.Forward(x, samebit.Train)
	if err != nil {
		t.Fatal(err)
	}
	dx, err := cpu.Backward(out.Tape, dy, g)
	if err := errors.Join(err, g.Flush()); err != nil {
		t.Fatal(err)
	}
	v := g.FP32()
	all := [][]float32{v.Router, v.SharedGate, v.Shared.Gate, v.Shared.Up, v.Shared.Down}
	for _, e := range v.Experts {
		all = append(all, e.Gate, e.Up, e.Down)
	}
	return dx, all
}

// deviceGradients are gradients in the GPU's memory, in the order of onCPU.
type deviceGradients struct {
	t       *testing.T
	q       backend.Queue
	stream  *samebit.WorkspaceGradients
	buffers []backend.Buffer
}

func newDeviceGradients(t *testing.T, ws *samebit.Workspace, s contract.Shape, dtype backend.Dtype) *deviceGradients {
	g := &deviceGradients{t: t, q: ws.Queue()}
	matrix := func(n int) uintptr {
		b, err := g.q.Alloc(dtype, n)
		if err == nil {
			err = g.q.Zero(b)
		}
		if err != nil {
			t.Fatal(err)
		}
		g.buffers = append(g.buffers, b)
		return g.q.Address(b)
	}
	expert := func(width int) samebit.ExpertTensors {
		return samebit.ExpertTensors{Gate: matrix(s.Hidden * width), Up: matrix(s.Hidden * width), Down: matrix(s.Hidden * width)}
	}
	to := samebit.GradientTensors{Dtype: dtype, Router: matrix(s.Experts * s.Hidden), SharedGate: matrix(s.Hidden), Shared: expert(s.SharedWidth)}
	for range s.Experts {
		to.Experts = append(to.Experts, expert(s.Width))
	}
	var err error
	if g.stream, err = ws.NewGradients(to); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *deviceGradients) check(want [][]float32) {
	for i, b := range g.buffers {
		raw := make([]byte, b.Len()*b.Dtype().Size())
		if err := g.q.Read(raw, b); err != nil {
			g.t.Fatal(err)
		}
		need := host.Bytes(want[i])
		if b.Dtype() == backend.BF16 {
			rounded := make([]samebit.BF16, len(want[i]))
			for j, v := range want[i] {
				rounded[j] = contract.Round(v)
			}
			need = host.Bytes(rounded)
		}
		for j := range raw {
			if raw[j] != need[j] {
				g.t.Errorf("gradient %d in %v: element %d differs", i, b.Dtype(), j/b.Dtype().Size())
				return
			}
		}
	}
}
