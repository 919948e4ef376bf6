// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/contract"
)

// checkpoints are tiny ones of another package, with inputs and what float64 gives; two have vectors here.
const (
	checkpoints = "../checkpoint/testdata"
	testLayer   = 1
	testIO      = "layer1-moe-io.safetensors"
)

var vectors = []string{"qwen3-next-tiny", "qwen2-moe-tiny"}

// result is what a layer gives for a stream of tokens.
type result struct {
	tokens []contract.Token
	dx     [][]contract.BF16
	grads  *contract.Gradients
}

// runLayer takes every token of x [T,H] forward and backward; replay is nil or [T,K].
func runLayer(l *contract.Layer, x, dy []contract.BF16, replay [][]int32) result {
	r := result{grads: l.NewGradients()}
	for i := 0; i < len(x); i += l.Hidden {
		var ids []int32
		if replay != nil {
			ids = replay[i/l.Hidden]
		}
		t := l.Forward(x[i:i+l.Hidden], ids)
		r.tokens = append(r.tokens, t)
		r.dx = append(r.dx, l.Backward(t, dy[i:i+l.Hidden], r.grads))
	}
	r.grads.Flush()
	return r
}

// join puts one field of every token in a row.
func join[T any](r result, field func(contract.Token) []T) (v []T) {
	for _, t := range r.tokens {
		v = append(v, field(t)...)
	}
	return v
}

func ids(t contract.Token) []int32            { return t.IDs }
func routes(t contract.Token) []float32       { return t.Weights }
func logits(t contract.Token) []float32       { return t.Logits }
func output(t contract.Token) []contract.BF16 { return t.Y }

// load opens a tiny checkpoint's layer and its inputs.
func load(t *testing.T, name string) (l *contract.Layer, layer *checkpoint.Layer, x, dy []contract.BF16) {
	t.Helper()
	c, err := checkpoint.Open(filepath.Join(checkpoints, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	layer, err = c.Layer(testLayer)
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, filepath.Join(checkpoints, name, testIO))
	return &contract.Layer{Shape: layer.Shape, Weights: layer.Weights}, layer, bf16Tensor(t, f, "x"), bf16Tensor(t, f, "dy")
}

// TestLayerVectors runs two checkpoints' layers forward and backward and compares all that comes out with what an
// independent reading of the rules gave (R2 to R11).
func TestLayerVectors(t *testing.T) {
	for _, name := range vectors {
		t.Run(name, func(t *testing.T) {
			l, layer, x, dy := load(t, name)
			got := runLayer(l, x, dy, nil)
			want := open(t, filepath.Join("testdata", name+".safetensors"))
			compared := []string{"logits", "topk_ids", "topk_weights", "y", "dx"}
			sameBits(t, "logits", l.Experts, join(got, logits), f32Tensor(t, want, "logits"))
			sameBits(t, "topk_ids", l.TopK, join(got, ids), i32Tensor(t, want, "topk_ids"))
			sameBits(t, "topk_weights", l.TopK, join(got, routes), f32Tensor(t, want, "topk_weights"))
			sameBits(t, "y", l.Hidden, join(got, output), bf16Tensor(t, want, "y"))
			sameBits(t, "dx", l.Hidden, slices.Concat(got.dx...), bf16Tensor(t, want, "dx"))
			for _, e := range layer.Tensors {
				sameBits(t, e.Short, e.Shape[len(e.Shape)-1], gradientOf(got.grads, e.Parts[0]), f32Tensor(t, want, "grad."+e.Short))
				compared = append(compared, "grad."+e.Short)
			}
			for _, name := range want.Names() {
				if !slices.Contains(compared, name) {
					t.Errorf("%s: %s is compared with nothing", want.Path(), name)
				}
			}
			t.Logf("%d tensors", len(compared))
		})
	}
}

// gradientOf is the gradient of one matrix of the layer.
func gradientOf(g *contract.Gradients, p checkpoint.Part) []float32 {
	var e *contract.ExpertGradient
	if e = g.Shared; !p.Shared && p.Expert < len(g.Experts) {
		e = &g.Experts[p.Expert]
	}
	switch p.Role {
	case checkpoint.Router:
		return g.Router
	case checkpoint.SharedGate:
		return g.SharedGate
	case checkpoint.Gate:
		return e.Gate
	case checkpoint.Up:
		return e.Up
	}
	return e.Down
}

// everyGradient is all of g, in one row.
func everyGradient(g *contract.Gradients) []float32 {
	v := slices.Concat(g.Router, g.SharedGate)
	for _, e := range g.Experts {
		v = slices.Concat(v, e.Gate, e.Up, e.Down)
	}
	if g.Shared != nil {
		v = slices.Concat(v, g.Shared.Gate, g.Shared.Up, g.Shared.Down)
	}
	return v
}

// sameResult demands the same y, dx and gradients.
func sameResult(t *testing.T, what string, hidden int, got, want result) {
	t.Helper()
	sameBits(t, what+": y", hidden, join(got, output), join(want, output))
	sameGradients(t, what, hidden, got, want)
}

// sameGradients demands the same dx and gradients.
func sameGradients(t *testing.T, what string, hidden int, got, want result) {
	t.Helper()
	sameBits(t, what+": dx", hidden, slices.Concat(got.dx...), slices.Concat(want.dx...))
	sameBits(t, what+": gradients", hidden, everyGradient(got.grads), everyGradient(want.grads))
}
