// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/checkpoint/testdata"
	"github.com/samebit/samebit/contract"
)

// Bounds on the relative L2 error: what BF16 storage between the stages costs, and a margin of a tenth.
const (
	tokenBound    = 3.2e-3 // of y and dx
	gradientBound = 3e-3   // of each weight's gradient
	logitBound    = 1e-6
	tieBound      = 1e-6 // logits nearer than this may change places: at the full shape each is up to 1.2e-6 off, most of them 1e-7
	ownBound      = 2e-7 // of the gate's float64 layer: transformers takes its softmax in FP32, and keeps its gradients so
)

// float64Routes counts the tokens that float64 sends to another set of experts, and measures the logits.
func float64Routes(c *check) {
	c.needFloat64()
	w := c.uneven(c.most)
	w.dy = nil
	p := c.run(w)
	unlike, ties, logits := 0, 0, &deviation{}
	l := layer64{c.Shape, c.Weights}
	for t := range c.most {
		exact := times(c.Weights.Router, wide(w.x[t*c.Shape.Hidden:(t+1)*c.Shape.Hidden]))
		add(logits, p.logits[t*c.Shape.Experts:(t+1)*c.Shape.Experts], exact)
		gap, swapped := l.unlike(exact, p.ids[t*c.Shape.TopK:(t+1)*c.Shape.TopK])
		switch {
		case swapped == "":
			continue
		case gap < tieBound:
			ties++
		default:
			unlike++
		}
		c.note("token %d: %s; their logits are %.2g apart", t, swapped, gap)
	}
	c.measure(fmt.Sprintf("tokens of %d routed unlike float64", c.most), float64(unlike), 0)
	c.note("%d tokens more whose logits are less than %g apart", ties, tieBound)
	c.deviates("logits", logits, logitBound)
	c.digest(p.routes()...)
}

// uneven makes n tokens and their upstream gradients, with a factor for each channel, from 0.5 up to 1.5, as from a norm's weights.
// Without, numbers and weights are short integers at one scale, whose products fit FP32: there would be no error to measure.
func (c *check) uneven(n int) work {
	w := c.input(n)
	for _, v := range [][]BF16{w.x, w.dy} {
		for i := range v {
			factor := 0.5 + float64(uint32(i%c.Shape.Hidden)*0x9E3779B9)/(1<<32)
			v[i] = contract.Round(float32(float64(v[i].Float32()) * factor))
		}
	}
	return w
}

// unlike says which experts took others' place, and how far apart in float64 the last that should be in and the first that
// should be out are.
func (l layer64) unlike(logits []float64, ids []int32) (gap float64, swapped string) {
	order := layer64{Shape: contract.Shape{TopK: l.Experts}}.top(logits)
	need, have := slices.Sorted(slices.Values(order[:l.TopK])), slices.Sorted(slices.Values(ids))
	if slices.Equal(need, have) {
		return 0, ""
	}
	return logits[order[l.TopK-1]] - logits[order[l.TopK]], fmt.Sprintf("experts %v in place of %v", have, need)
}

// float64Accuracy measures y, dx and all gradients against float64 over the same routes.
func float64Accuracy(c *check) {
	c.needFloat64()
	n := c.few(256)
	if c.Shape.Hidden*c.Shape.Width > 1<<14 {
		n = c.few(64)
	}
	w := c.uneven(n)
	w.gradients = true
	p := c.run(w)
	exact := layer64{c.Shape, c.Weights}.run(w.x, w.dy, p.ids)
	c.against("", p, truth{exact.y, exact.dx, exact.router, exact.sharedRow, exact.gradient})
	c.digest(p.everything()...)
	c.note("%d tokens", n)
}

func (c *check) needFloat64() {
	if c.Options.RouterLogits == samebit.BF16Logits {
		c.skip("logits in BF16: need FP32, which float64 is the measure of")
	}
}

// truth is what results are measured against.
type truth struct {
	y, dx, router, sharedGate []float64
	gradient                  func(e int, role string) []float64 // the shared expert is expert E
}

// against measures a pass.
func (c *check) against(name string, p pass, exact truth) {
	one := func(what string, bound float64, d *deviation) { c.deviates(name+what, d, bound) }
	one("y", tokenBound, add(new(deviation), p.y, exact.y))
	one("dx", tokenBound, add(new(deviation), p.dx, exact.dx))
	one("dW router", gradientBound, add(new(deviation), p.grads.Router, exact.router))
	for _, r := range roles {
		d := new(deviation)
		for e := range p.grads.Experts {
			add(d, r.of(&p.grads.Experts[e]), exact.gradient(e, r.name))
		}
		one("dW "+r.name, gradientBound, d)
	}
	if p.grads.Shared == nil {
		return
	}
	for _, r := range roles {
		one("dW shared "+r.name+"_proj", gradientBound, add(new(deviation), r.of(p.grads.Shared), exact.gradient(c.Shape.Experts, r.name)))
	}
	one("dW shared gate", gradientBound, add(new(deviation), p.grads.SharedGate, exact.sharedGate))
}

// transformers measures the layer, and the float64 layer of this package too, against what transformers computed in float64
// and left beside the checkpoint.
func transformers(c *check) {
	c.needFloat64()
	io := c.stored()
	w := io.work()
	ids := read(io, "topk_ids", safetensors.Tensor.I32)
	p := c.run(w)
	unlike := 0
	for t := range len(ids) / c.Shape.TopK {
		row := func(v []int32) []int32 { return slices.Sorted(slices.Values(v[t*c.Shape.TopK : (t+1)*c.Shape.TopK])) }
		if !slices.Equal(row(ids), row(p.ids)) {
			unlike++
		}
	}
	c.measure("tokens routed unlike transformers", float64(unlike), 0)
	exact := io.truth()
	c.deviates("logits", add(new(deviation), p.logits, read(io, "logits_f64", safetensors.Tensor.F64)), logitBound)
	c.against("", p, exact)

	own := layer64{c.Shape, c.Weights}.run(w.x, w.dy, nil)
	c.deviates("the gate's float64 layer: y", add(new(deviation), own.y, exact.y), ownBound)
	c.deviates("the gate's float64 layer: dx", add(new(deviation), own.dx, exact.dx), ownBound)
	for _, r := range roles {
		d := new(deviation)
		for e := range c.Shape.Experts {
			add(d, own.gradient(e, r.name), exact.gradient(e, r.name))
		}
		c.deviates("the gate's float64 layer: dW "+r.name, d, ownBound)
	}
	c.deviates("the gate's float64 layer: dW router", add(new(deviation), own.router, exact.router), ownBound)
	c.digest(p.everything()...)
}

// stored is a file of transformers' results.
type stored struct {
	c *check
	f *safetensors.File
}

// stored is the file beside the checkpoint.
func (c *check) stored() stored {
	c.needCheckpoint()
	data, err := fs.ReadFile(c.folder, testdata.IO)
	if errors.Is(err, fs.ErrNotExist) {
		c.skip("no %s beside the checkpoint: need transformers' results", testdata.IO)
	}
	c.must(err)
	f, err := safetensors.Parse(testdata.IO, data)
	c.must(err)
	if n := f.Metadata()["layer"]; n != fmt.Sprint(c.layer.Index) {
		c.skip("%s is of layer %s: need layer %d", testdata.IO, n, c.layer.Index)
	}
	return stored{c, f}
}

// work is the file's tokens, forward and backward.
func (s stored) work() work {
	return work{x: read(s, "x", safetensors.Tensor.BF16), dy: read(s, "dy", safetensors.Tensor.BF16), gradients: true}
}

// read gives a tensor's elements.
func read[T any](s stored, name string, view func(safetensors.Tensor) ([]T, error)) []T {
	t, ok := s.f.Tensor(name)
	if !ok {
		s.c.must(fmt.Errorf("%s: tensor %q: found none: need it", testdata.IO, name))
	}
	v, err := view(t)
	s.c.must(err)
	return v
}

// truth reads the results; the experts' gradients are fused, gate rows first.
func (s stored) truth() truth {
	grad := func(name string) []float64 { return widen(read(s, "grad_f64."+name, safetensors.Tensor.F32)) }
	shape := s.c.Shape
	t := truth{y: read(s, "y_f64", safetensors.Tensor.F64), dx: read(s, "dx_f64", safetensors.Tensor.F64), router: grad("gate.weight")}
	gateUp, down := grad("experts.gate_up_proj"), grad("experts.down_proj")
	if shape.SharedWidth > 0 {
		t.sharedGate = grad("shared_expert_gate.weight")
	}
	n := shape.Width * shape.Hidden
	t.gradient = func(e int, role string) []float64 {
		switch {
		case e == shape.Experts:
			return grad("shared_expert." + role + "_proj.weight")
		case role == "gate":
			return gateUp[2*e*n : (2*e+1)*n]
		case role == "up":
			return gateUp[(2*e+1)*n : (2*e+2)*n]
		}
		return down[e*n : (e+1)*n]
	}
	return t
}

// deviation is how far results are from the truth.
type deviation struct{ largest, squares, of float64 }

// add takes in some more results.
func add[T BF16 | float32 | float64](d *deviation, have []T, need []float64) *deviation {
	for i, v := range widen(have) {
		off := v - need[i]
		if d.largest = max(d.largest, math.Abs(off)); math.IsNaN(off) {
			d.largest = math.Inf(1)
		}
		d.squares += off * off
		d.of += need[i] * need[i]
	}
	return d
}

// widen gives values in float64.
func widen[T BF16 | float32 | float64](v []T) []float64 {
	switch v := any(v).(type) {
	case []BF16:
		return wide(v)
	case []float64:
		return v
	}
	w := make([]float64, len(v))
	for i := range v {
		w[i] = float64(v[i])
	}
	return w
}

// deviates records a deviation as its relative L2 norm, with the largest error beside it.
func (c *check) deviates(what string, d *deviation, bound float64) {
	c.result.measure(Measurement{What: what, Value: math.Sqrt(d.squares / d.of), Bound: bound, MaxAbs: d.largest, Relative: true})
}
