// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit_test

import (
	"io/fs"
	"math"
	"slices"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/checkpoint/testdata"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/bits"
	"github.com/samebit/samebit/internal/testgen"
)

// Layers that transformers wrote, beside what it computes of them in float64: the same experts for every token, and results
// no further away than the contract's own rounding takes them. In both layouts of the experts.
func TestTransformers(t *testing.T) {
	for _, folder := range testdata.All() {
		fused := t.TempDir() + "/fused"
		if err := testgen.Fuse(folder.FS, fused, 1); err != nil {
			t.Fatal(err)
		}
		split, err := checkpoint.OpenFS(folder.FS)
		if err != nil {
			t.Fatal(err)
		}
		joined, err := checkpoint.Open(fused)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { joined.Close() })
		io := openFile(t, folder.FS, testdata.IO)
		for layout, c := range map[string]*checkpoint.Checkpoint{"split": split, "fused": joined} {
			t.Run(folder.Name+"/"+layout, func(t *testing.T) { againstFloat64(t, c, io) })
		}
	}
}

func againstFloat64(t *testing.T, c *checkpoint.Checkpoint, io *safetensors.File) {
	l, err := samebit.Load(c, 1, samebit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, dx, g := run(t, l, io)

	k := l.Shape().TopK
	want := i32(t, io, "topk_ids")
	for token := range len(want) / k {
		have, want := slices.Clone(out.IDs[token*k:][:k]), slices.Clone(want[token*k:][:k])
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("token %d went to experts %v, in float64 to %v", token, have, want)
		}
	}
	within := func(what string, have []float64, want []float64, most float64) {
		t.Helper()
		e := relativeL2(have, want)
		t.Logf("%-12s %.2e", what, e)
		if !(e <= most) {
			t.Errorf("%s: relative L2 against float64 is %.2e: need at most %.1e", what, e, most)
		}
	}
	within("y", fromBF16(out.Y), f64(t, io, "y_f64"), 3.2e-3)
	within("dx", fromBF16(dx), f64(t, io, "dx_f64"), 3.2e-3)
	within("router", fromFP32(g.Router), gradient(t, io, "gate.weight"), 3e-3)
	var gateUp, down []float32
	for _, e := range g.Experts {
		gateUp, down = append(append(gateUp, e.Gate...), e.Up...), append(down, e.Down...)
	}
	within("gate, up", fromFP32(gateUp), gradient(t, io, "experts.gate_up_proj"), 3e-3)
	within("down", fromFP32(down), gradient(t, io, "experts.down_proj"), 3e-3)
	if g.Shared != nil {
		within("shared gate", fromFP32(g.SharedGate), gradient(t, io, "shared_expert_gate.weight"), 3e-3)
		within("shared g", fromFP32(g.Shared.Gate), gradient(t, io, "shared_expert.gate_proj.weight"), 3e-3)
		within("shared u", fromFP32(g.Shared.Up), gradient(t, io, "shared_expert.up_proj.weight"), 3e-3)
		within("shared d", fromFP32(g.Shared.Down), gradient(t, io, "shared_expert.down_proj.weight"), 3e-3)
	}
}

// The contract's exact bits of two of the layers, every tensor, with every backend.
func TestContractBits(t *testing.T) {
	for _, name := range []string{"qwen3-next-tiny", "qwen2-moe-tiny"} {
		want, err := safetensors.Open("contract/testdata/" + name + ".safetensors")
		if err != nil {
			t.Fatal(err)
		}
		defer want.Close()
		for _, backend := range []string{"cpu", "ref"} {
			t.Run(name+"/"+backend, func(t *testing.T) {
				l, err := samebit.Open("checkpoint/testdata/"+name, 1, samebit.Options{Backend: backend})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				io, err := safetensors.Open("checkpoint/testdata/" + name + "/" + testdata.IO)
				if err != nil {
					t.Fatal(err)
				}
				defer io.Close()
				out, dx, g := run(t, l, io)
				s, n := l.Shape(), len(out.IDs)/l.Shape().TopK
				tensors := []safetensors.Tensor{
					bits.Of("y", []int{n, s.Hidden}, out.Y), bits.Of("dx", []int{n, s.Hidden}, dx),
					bits.Of("logits", []int{n, s.Experts}, out.Logits),
					bits.Of("topk_ids", []int{n, s.TopK}, out.IDs), bits.Of("topk_weights", []int{n, s.TopK}, out.Weights),
				}
				for _, e := range l.Tensors() {
					tensors = append(tensors, bits.Of("grad."+e.Short, e.Shape, *e.Parts[0].InGradients(g)))
				}
				if len(tensors) != len(want.Names()) {
					t.Errorf("%d tensors, want %d", len(tensors), len(want.Names()))
				}
				for _, have := range tensors {
					w, ok := want.Tensor(have.Name)
					if !ok {
						t.Errorf("%s: not among the wanted", have.Name)
					} else if d := bits.Compare(have, w); !d.Same() {
						t.Error(d)
					}
				}
			})
		}
	}
}

// run is a forward and a backward of io's x and dy.
func run(t *testing.T, l *samebit.Layer, io *safetensors.File) (*samebit.Output, []samebit.BF16, *contract.Gradients) {
	t.Helper()
	out, err := l.Forward(bf16(t, io, "x"), samebit.Train)
	if err != nil {
		t.Fatal(err)
	}
	g, err := l.NewGradients(nil)
	if err != nil {
		t.Fatal(err)
	}
	dx, err := l.Backward(out.Tape, bf16(t, io, "dy"), g)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Flush(); err != nil {
		t.Fatal(err)
	}
	return out, dx, g.FP32()
}

func openFile(t *testing.T, fsys fs.FS, name string) *safetensors.File {
	t.Helper()
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Parse(name, data)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func tensor(t *testing.T, f *safetensors.File, name string) safetensors.Tensor {
	t.Helper()
	x, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("%s has no tensor %s", f.Path(), name)
	}
	return x
}

func must[T any](t *testing.T) func(v []T, err error) []T {
	return func(v []T, err error) []T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func bf16(t *testing.T, f *safetensors.File, name string) []contract.BF16 {
	return must[contract.BF16](t)(tensor(t, f, name).BF16())
}
func i32(t *testing.T, f *safetensors.File, name string) []int32 {
	return must[int32](t)(tensor(t, f, name).I32())
}
func f64(t *testing.T, f *safetensors.File, name string) []float64 {
	return must[float64](t)(tensor(t, f, name).F64())
}
func gradient(t *testing.T, f *safetensors.File, name string) []float64 {
	return fromFP32(must[float32](t)(tensor(t, f, "grad_f64."+name).F32()))
}

func fromBF16(v []contract.BF16) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = float64(v[i].Float32())
	}
	return out
}

func fromFP32(v []float32) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = float64(v[i])
	}
	return out
}

// relativeL2 is the length of the difference over that of want.
func relativeL2(have, want []float64) float64 {
	if len(have) != len(want) {
		return math.Inf(1)
	}
	var d, w float64
	for i := range want {
		d += (have[i] - want[i]) * (have[i] - want[i])
		w += want[i] * want[i]
	}
	return math.Sqrt(d / w)
}
