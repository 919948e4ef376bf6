// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
	"github.com/samebit/samebit/internal/testgen"
)

// onDevice is a layer on the device, a training workspace of it, and tensors of n tokens where the workspace finds them.
type onDevice struct {
	t       *testing.T
	layer   *samebit.Layer
	weights contract.Weights // the layer's, its own
	ws      *samebit.Workspace
	queue   *deviceQueue
	n       int

	x, y, dy, dx []samebit.BF16
	tensors      samebit.Tensors
}

// aligned is memory at a multiple of 16 bytes, with room behind it.
func aligned[T any](n int) []T {
	v := make([]T, n+16)
	for addressOf(v)%16 != 0 {
		v = v[1:]
	}
	return v[:n]
}

func addressOf[T any](v []T) uintptr { return uintptr(unsafe.Pointer(&v[0])) }

func newOnDevice(t *testing.T, n int) *onDevice {
	t.Helper()
	d := &onDevice{t: t, weights: testgen.Weights(shape, 1), n: n}
	var err error
	if d.layer, err = samebit.New(shape, &d.weights, samebit.Options{Backend: "device", AllowReject: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.layer.Close() })
	if d.ws, err = d.layer.NewTrainingWorkspace(n); err != nil {
		t.Fatal(err)
	}
	d.queue = d.ws.Queue().(*deviceQueue)
	for to, from := range map[*[]samebit.BF16][]samebit.BF16{&d.x: x, &d.dy: dy, &d.y: nil, &d.dx: nil} {
		*to = aligned[samebit.BF16](n * shape.Hidden)
		copy(*to, from)
	}
	d.tensors = samebit.Tensors{X: addressOf(d.x), Y: addressOf(d.y)}
	return d
}

func (d *onDevice) backward(g *samebit.WorkspaceGradients) error {
	return d.ws.EnqueueBackward(addressOf(d.dy), addressOf(d.dx), g)
}

// gradients are a stream into new memory, and that memory by name.
func (d *onDevice) gradients() (*samebit.WorkspaceGradients, map[string][]float32) {
	d.t.Helper()
	to, memory := gradientMemory()
	g, err := d.ws.NewGradients(to)
	if err != nil {
		d.t.Fatal(err)
	}
	return g, memory
}

func gradientMemory() (samebit.GradientTensors, map[string][]float32) {
	memory := map[string][]float32{}
	matrix := func(name string, n int) uintptr {
		memory[name] = aligned[float32](n)
		return addressOf(memory[name])
	}
	expert := func(name string, width int) samebit.ExpertTensors {
		n := shape.Hidden * width
		return samebit.ExpertTensors{Gate: matrix(name+" gate", n), Up: matrix(name+" up", n), Down: matrix(name+" down", n)}
	}
	to := samebit.GradientTensors{Dtype: backend.FP32, Router: matrix("router", shape.Experts*shape.Hidden),
		SharedGate: matrix("shared gate", shape.Hidden), Shared: expert("shared expert", shape.SharedWidth)}
	for e := range shape.Experts {
		to.Experts = append(to.Experts, expert(fmt.Sprintf("expert %d", e), shape.Width))
	}
	return to, memory
}

// A workspace gives the layer's bits, whole and in parts, in every tensor that is asked for; it goes into the caller's stream.
func TestWorkspaceBits(t *testing.T) {
	const n = 40
	d := newOnDevice(t, n)
	d.x[9*shape.Hidden] = 0x7FC0 // token 9 is rejected (R13)
	live := make([]int32, n)
	live[9] = int32(contract.Rejected)
	want, err := d.layer.Forward(d.x, samebit.Train)
	if err != nil {
		t.Fatal(err)
	}
	wantGrads, err := d.layer.NewGradients(nil)
	if err != nil {
		t.Fatal(err)
	}
	wantDX, err := d.layer.Backward(want.Tape, d.dy, wantGrads)
	if err := errors.Join(err, wantGrads.Flush()); err != nil {
		t.Fatal(err)
	}
	small, err := d.layer.NewWorkspace(7)
	if err != nil {
		t.Fatal(err)
	}
	logits, ids, weights, status := make([]float32, n*shape.Experts), make([]int32, n*shape.TopK), make([]float32, n*shape.TopK), make([]int32, n)
	d.tensors.Logits, d.tensors.IDs, d.tensors.Weights, d.tensors.Status = addressOf(logits), addressOf(ids), addressOf(weights), addressOf(status)
	for _, ws := range []*samebit.Workspace{d.ws, small} {
		for _, v := range [][]byte{host.Bytes(d.y), host.Bytes(logits), host.Bytes(ids), host.Bytes(weights), host.Bytes(status)} {
			copy(v, bytes.Repeat([]byte{0xFF}, len(v)))
		}
		if err := ws.Forward(77, d.tensors, n); err != nil {
			t.Fatal(err)
		}
		sameBits(t, "y", d.y, want.Y)
		sameBits(t, "logits", logits, want.Logits)
		sameBits(t, "ids", ids, want.IDs)
		sameBits(t, "weights", weights, want.Weights)
		sameBits(t, "status", status, live)
		if have := ws.Queue().(*deviceQueue).stream; have != 77 {
			t.Errorf("a forward in stream %d, want 77", have)
		}
	}
	g, memory := d.gradients()
	if err := errors.Join(d.ws.Backward(78, addressOf(d.dy), addressOf(d.dx), g), g.Flush()); err != nil {
		t.Fatal(err)
	}
	if d.queue.stream != 78 {
		t.Errorf("a backward in stream %d, want 78", d.queue.stream)
	}
	sameBits(t, "dx", d.dx, wantDX)
	grads := wantGrads.FP32()
	sameBits(t, "dW router", memory["router"], grads.Router)
	sameBits(t, "dW shared gate", memory["shared gate"], grads.SharedGate)
	for e := range shape.Experts + 1 {
		name, part := "shared expert", grads.Shared
		if e < shape.Experts {
			name, part = fmt.Sprintf("expert %d", e), &grads.Experts[e]
		}
		sameBits(t, "dW gate of "+name, memory[name+" gate"], part.Gate)
		sameBits(t, "dW up of "+name, memory[name+" up"], part.Up)
		sameBits(t, "dW down of "+name, memory[name+" down"], part.Down)
	}
}

// sameBits compares bits, so that -0 is not +0 and a NaN is itself.
func sameBits[T any](t *testing.T, what string, have, want []T) {
	t.Helper()
	a, b := host.Bytes(have), host.Bytes(want)
	if len(a) != len(b) {
		t.Errorf("%s: %d elements, want %d", what, len(have), len(want))
		return
	}
	for i := range a {
		if a[i] != b[i] {
			j := i / int(unsafe.Sizeof(have[0]))
			t.Errorf("%s: element %d is %v, want %v", what, j, have[j], want[j])
			return
		}
	}
}

// A forward that a workspace refuses runs no stage, says what was found, and leaves no forward for a backward to follow.
func TestWorkspaceRefusesForwards(t *testing.T) {
	const n = 40
	d := newOnDevice(t, n)
	good := d.tensors
	count := []int32{n}
	at := func(change func(*samebit.Tensors)) samebit.Tensors {
		v := good
		change(&v)
		return v
	}
	cases := map[string]struct {
		tensors samebit.Tensors
		tokens  int
		want    string
	}{
		"tokens below none":          {good, -1, "found -1 tokens: need at least 0"},
		"more tokens than there are": {good, n + 1, "found 41 tokens to train on"},
		"no x":                       {at(func(v *samebit.Tensors) { v.X = 0 }), n, "no address of x or of y"},
		"no y":                       {at(func(v *samebit.Tensors) { v.Y = 0 }), n, "no address of x or of y"},
		"x off 16":                   {at(func(v *samebit.Tensors) { v.X += 8 }), n, "need a multiple of 16"},
		"y off 16":                   {at(func(v *samebit.Tensors) { v.Y += 8 }), n, "need a multiple of 16"},
		"logits off 4":               {at(func(v *samebit.Tensors) { v.Logits = good.Y + 2 }), n, "need a multiple of 4"},
		"ids off 4":                  {at(func(v *samebit.Tensors) { v.IDs = good.Y + 2 }), n, "need a multiple of 4"},
		"weights off 4":              {at(func(v *samebit.Tensors) { v.Weights = good.Y + 2 }), n, "need a multiple of 4"},
		"status off 4":               {at(func(v *samebit.Tensors) { v.Status = good.Y + 2 }), n, "need a multiple of 4"},
		"count off 4":                {at(func(v *samebit.Tensors) { v.Count = good.Y + 2 }), n, "need a multiple of 4"},
	}
	for name, c := range cases {
		if err := d.ws.Enqueue(good, n); err != nil {
			t.Fatal(err)
		}
		before := d.queue.stages
		if err := d.ws.Enqueue(c.tensors, c.tokens); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, c.want)
		}
		if err := d.backward(nil); err == nil || !strings.Contains(err.Error(), "without a forward") {
			t.Errorf("%s: a backward after the refusal: error %v, want one", name, err)
		}
		if d.queue.stages != before {
			t.Errorf("%s: stages ran", name)
		}
	}

	// Tokens that are counted on the GPU are no more than the workspace's.
	forward, err := d.layer.NewWorkspace(n)
	if err != nil {
		t.Fatal(err)
	}
	good.Count = addressOf(count)
	if err := forward.Enqueue(good, n+1); err == nil || !strings.Contains(err.Error(), "counted on the GPU: need at most the workspace's 40") {
		t.Errorf("too many to count: %v", err)
	}
	if err := forward.Enqueue(good, n); err != nil || forward.Queue().(*deviceQueue).count == nil {
		t.Errorf("counted: %v, or no count was given to the queue", err)
	}
	good.Count = 0
	if err := forward.Enqueue(good, n); err != nil || forward.Queue().(*deviceQueue).count != nil {
		t.Errorf("not counted: %v, or the count before was kept", err)
	}
	if err := forward.EnqueueBackward(addressOf(d.dy), addressOf(d.dx), nil); err == nil || !strings.Contains(err.Error(), "NewTrainingWorkspace") {
		t.Errorf("a backward in a workspace of forwards: %v", err)
	}
	for _, tokens := range []int{0, -1} {
		for _, open := range []func(int) (*samebit.Workspace, error){d.layer.NewWorkspace, d.layer.NewTrainingWorkspace} {
			if _, err := open(tokens); err == nil || !strings.Contains(err.Error(), "need at least 1") {
				t.Errorf("a workspace for %d tokens: %v", tokens, err)
			}
		}
	}
}

// A backward that a workspace refuses runs no stage; the forward stays for another.
func TestWorkspaceRefusesBackwards(t *testing.T) {
	d := newOnDevice(t, 8)
	if err := d.backward(nil); err == nil || !strings.Contains(err.Error(), "without a forward") {
		t.Errorf("a backward ahead of any forward: %v", err)
	}
	other, err := d.layer.NewTrainingWorkspace(8)
	if err != nil {
		t.Fatal(err)
	}
	to, _ := gradientMemory()
	foreign, err := other.NewGradients(to)
	if err != nil {
		t.Fatal(err)
	}
	closed, _ := d.gradients()
	if err := errors.Join(closed.Close(), closed.Close()); err != nil || d.queue.folds != 0 {
		t.Errorf("closed twice: %v, %d folds are open", err, d.queue.folds)
	}
	if err := d.ws.Enqueue(d.tensors, 8); err != nil {
		t.Fatal(err)
	}
	before, up, down := d.queue.stages, addressOf(d.dy), addressOf(d.dx)
	for name, c := range map[string]struct {
		dy, dx uintptr
		g      *samebit.WorkspaceGradients
		want   string
	}{
		"no dy":                          {0, down, nil, "need addresses at multiples of 16"},
		"no dx":                          {up, 0, nil, "need addresses at multiples of 16"},
		"dy off 16":                      {up + 8, down, nil, "need addresses at multiples of 16"},
		"dx off 16":                      {up, down + 8, nil, "need addresses at multiples of 16"},
		"gradients of another workspace": {up, down, foreign, "need its own"},
		"closed gradients":               {up, down, closed, "the gradients are closed"},
	} {
		if err := d.ws.EnqueueBackward(c.dy, c.dx, c.g); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, c.want)
		}
	}
	if err := closed.Flush(); err == nil || !strings.Contains(err.Error(), "the gradients are closed") {
		t.Errorf("a flush of closed gradients: %v", err)
	}
	if d.queue.stages != before {
		t.Error("stages ran")
	}
	if err := d.backward(nil); err != nil {
		t.Errorf("the backward after the refusals: %v", err)
	}
}

// Gradients are of the layer's experts, in a type that a fold has, each at an address that its kernels can take.
func TestWorkspaceRefusesGradients(t *testing.T) {
	d := newOnDevice(t, 8)
	refused := func(name, want string, change func(*samebit.GradientTensors)) {
		t.Helper()
		to, _ := gradientMemory()
		change(&to)
		if _, err := d.ws.NewGradients(to); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", name, err, want)
		}
	}
	refused("I32", "need FP32 or BF16", func(to *samebit.GradientTensors) { to.Dtype = backend.I32 })
	refused("an expert less", fmt.Sprintf("need %d", shape.Experts), func(to *samebit.GradientTensors) { to.Experts = to.Experts[1:] })
	last := shape.Experts - 1
	addresses := map[string]func(*samebit.GradientTensors) *uintptr{
		"router":                            func(to *samebit.GradientTensors) *uintptr { return &to.Router },
		"shared gate":                       func(to *samebit.GradientTensors) *uintptr { return &to.SharedGate },
		"shared expert gate":                func(to *samebit.GradientTensors) *uintptr { return &to.Shared.Gate },
		"shared expert up":                  func(to *samebit.GradientTensors) *uintptr { return &to.Shared.Up },
		"shared expert down":                func(to *samebit.GradientTensors) *uintptr { return &to.Shared.Down },
		"expert 0 gate":                     func(to *samebit.GradientTensors) *uintptr { return &to.Experts[0].Gate },
		"expert 0 up":                       func(to *samebit.GradientTensors) *uintptr { return &to.Experts[0].Up },
		fmt.Sprintf("expert %d down", last): func(to *samebit.GradientTensors) *uintptr { return &to.Experts[last].Down },
	}
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		of := addresses[name]
		refused("no "+name, name+" at 0x0: ", func(to *samebit.GradientTensors) { *of(to) = 0 })
		refused(name+" off 16", name+" at 0x", func(to *samebit.GradientTensors) { *of(to) += 8 })
	}
	if d.queue.folds != 0 {
		t.Errorf("%d folds were made", d.queue.folds)
	}
}

// A rank without tokens takes part in a step: as Layer's do, a forward of none and its backward do nothing.
func TestWorkspaceOfNoTokens(t *testing.T) {
	d := newOnDevice(t, 8)
	g, memory := d.gradients()
	if err := d.ws.Enqueue(d.tensors, 8); err != nil {
		t.Fatal(err)
	}
	for i := range d.dx {
		d.dx[i] = 7
	}
	before := d.queue.stages
	if err := errors.Join(d.ws.Enqueue(samebit.Tensors{}, 0), d.ws.EnqueueBackward(0, 0, g), d.backward(g)); err != nil {
		t.Error(err)
	}
	if d.queue.stages != before || d.dx[0] != 7 {
		t.Error("stages ran on no tokens, or on those of the forward before")
	}
	if err := d.ws.EnqueueBackward(addressOf(d.dy)+8, addressOf(d.dx), g); err == nil {
		t.Error("dy off 16 is no error without tokens")
	}
	if err := g.Flush(); err != nil || memory["router"][0] != 0 {
		t.Errorf("flush: %v, or there are gradients of no tokens", err)
	}
}

// A forward that fails on the way leaves nothing for a backward.
func TestWorkspaceFails(t *testing.T) {
	d := newOnDevice(t, 8)
	if err := d.ws.Enqueue(d.tensors, 8); err != nil {
		t.Fatal(err)
	}
	d.queue.failing = true
	if err := d.ws.Enqueue(d.tensors, 8); !errors.Is(err, errOfDevice) {
		t.Errorf("error %v, want the device's", err)
	}
	if err := d.backward(nil); err == nil || !strings.Contains(err.Error(), "without a forward") {
		t.Errorf("a backward after a forward that failed: error %v, want one", err)
	}
}

// A closed workspace refuses everything and leaves its queue alone; it may be closed again.
func TestWorkspaceCloses(t *testing.T) {
	for _, first := range []string{"workspace", "layer"} {
		d := newOnDevice(t, 8)
		g, _ := d.gradients()
		if err := d.ws.Enqueue(d.tensors, 8); err != nil {
			t.Fatal(err)
		}
		want := "the " + first + " is closed"
		if first == "layer" {
			if err := d.layer.Close(); err != nil {
				t.Fatal(err)
			}
			refusesAll(t, d, g, want)
			if err := g.Close(); err != nil || d.queue.folds != 1 {
				t.Errorf("gradients closed after the layer, whose GPU is gone: %v, %d folds are left alone, want 1", err, d.queue.folds)
			}
			if err := d.ws.Close(); err == nil || !strings.Contains(err.Error(), want) || d.queue.closed != 0 {
				t.Errorf("closed after the layer, whose GPU is gone: error %v, want %q in it; %d times at the queue, want none", err, want, d.queue.closed)
			}
			want = "the workspace is closed"
		} else if err := d.ws.Close(); err != nil || d.queue.closed != 1 {
			t.Errorf("close: %v, %d times at the queue", err, d.queue.closed)
		}
		was := d.queue.closed
		if err := errors.Join(d.ws.Close(), g.Close(), g.Close()); err != nil || d.queue.closed != was {
			t.Errorf("%s first: closed again: %v, %d times at the queue, want %d", first, err, d.queue.closed, was)
		}
		refusesAll(t, d, g, want)
		if d.queue.late > 0 {
			t.Errorf("%s first: %d calls of a closed queue", first, d.queue.late)
		}
	}
}

// refusesAll calls everything that works on the layer.
func refusesAll(t *testing.T, d *onDevice, g *samebit.WorkspaceGradients, want string) {
	t.Helper()
	before := d.queue.stages
	to, _ := gradientMemory()
	_, errGradients := d.ws.NewGradients(to)
	for name, err := range map[string]error{
		"Enqueue":           d.ws.Enqueue(d.tensors, 8),
		"Enqueue of none":   d.ws.Enqueue(samebit.Tensors{}, 0),
		"Forward":           d.ws.Forward(5, d.tensors, 8),
		"EnqueueBackward":   d.backward(g),
		"Backward":          d.ws.Backward(5, addressOf(d.dy), addressOf(d.dx), nil),
		"NewGradients":      errGradients,
		"Gradients.Flush()": g.Flush(),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", name, err, want)
		}
	}
	if d.queue.stages != before {
		t.Error("stages ran")
	}
}

// Weights that Refresh refused are worked with by nothing, until it takes others.
func TestWorkspaceOfRefusedWeights(t *testing.T) {
	d := newOnDevice(t, 8)
	g, _ := d.gradients()
	if err := d.ws.Enqueue(d.tensors, 8); err != nil {
		t.Fatal(err)
	}
	was := d.weights.Router[3]
	d.weights.Router[3] = 0x7FC0
	if err := d.layer.Refresh(); err == nil {
		t.Fatal("a NaN among the weights is no error")
	}
	refusesAll(t, d, g, "weights were refused")
	for name, open := range map[string]func(int) (*samebit.Workspace, error){"NewWorkspace": d.layer.NewWorkspace, "NewTrainingWorkspace": d.layer.NewTrainingWorkspace} {
		if _, err := open(8); err == nil || !strings.Contains(err.Error(), "weights were refused") {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.weights.Router[3] = was
	if err := d.layer.Refresh(); err != nil {
		t.Fatal(err)
	}
	if err := d.backward(g); err == nil || !strings.Contains(err.Error(), "without a forward") {
		t.Errorf("a backward after a forward that was refused: error %v, want one", err)
	}
	if err := errors.Join(d.ws.Enqueue(d.tensors, 8), d.backward(g), g.Flush(), g.Close(), d.ws.Close()); err != nil {
		t.Error(err)
	}
}
