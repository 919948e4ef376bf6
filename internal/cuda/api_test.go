// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	_ "github.com/samebit/samebit/internal/cuda"
	"github.com/samebit/samebit/internal/host"
	"github.com/samebit/samebit/internal/testgen"
)

// The public layer gives one result on the CPU and on the GPU, in chunks of any size, with a tape and without.
func TestForward(t *testing.T) {
	s, err := testgen.Shape("mid")
	if err != nil {
		t.Fatal(err)
	}
	w := testgen.Weights(s, 1)
	x := testgen.Tokens(300, s.Hidden, 2)
	cpu, err := samebit.New(s, &w, samebit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cpu.Close()
	want, err := cpu.Forward(x)
	if err != nil {
		t.Fatal(err)
	}
	for _, chunk := range []int{0, 1 << 20, 97, 17} {
		gpu := openLayer(t, s, &w, samebit.Options{MaxTokens: chunk})
		t.Log(gpu.Device())
		for _, options := range [][]samebit.ForwardOption{nil, {samebit.Train}} {
			have, err := gpu.Forward(x, options...)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(have.Y, want.Y) || !slices.Equal(have.Logits, want.Logits) || !slices.Equal(have.IDs, want.IDs) ||
				!slices.Equal(have.Weights, want.Weights) {
				t.Errorf("chunks of %d: not the CPU's bits", chunk)
			}
			have.Tape.Free()
		}
	}
}

// openLayer makes the layer on the GPU, or skips where the machine has none, unless SAMEBIT_REQUIRE says that it must.
func openLayer(t *testing.T, s contract.Shape, w *contract.Weights, o samebit.Options) *samebit.Layer {
	t.Helper()
	o.Backend = "cuda"
	l, err := samebit.New(s, w, o)
	if need := (*backend.UnsupportedError)(nil); errors.As(err, &need) && !strings.Contains(os.Getenv("SAMEBIT_REQUIRE"), "cuda") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

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
			if err := ws.Enqueue(samebit.Tensors{X: d.X, Y: d.Y, Count: d.Count}, most); err == nil {
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

func same[T comparable](d *deviceTensors, what, name string, want []T, n int) {
	d.t.Helper()
	for i, v := range read[T](d, name)[:n] {
		if v != want[i] {
			d.t.Errorf("%s, %s: element %d is %v, want %v", what, name, i, v, want[i])
			return
		}
	}
}

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
