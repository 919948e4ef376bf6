// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/bits"
)

// Each accumulator has its own values, so that one in the wrong place shows: the fused tensors are the others joined.
func TestGradientOfBothLayouts(t *testing.T) {
	s := contract.Shape{Hidden: 4, Experts: 3, TopK: 1, Width: 2, SharedWidth: 6}
	g := s.NewGradients()
	next := float32(0)
	number := func(v []float32) {
		for i := range v {
			v[i] = next + 0x1p-20 // so that a cast rounds
			next++
		}
	}
	number(g.Router)
	number(g.SharedGate)
	for e := range g.Experts {
		number(g.Experts[e].Gate)
		number(g.Experts[e].Up)
		number(g.Experts[e].Down)
	}
	number(g.Shared.Gate)
	number(g.Shared.Up)
	number(g.Shared.Down)

	want := map[string][]float32{
		"grad.mlp.gate.weight":                    g.Router,
		"grad.mlp.shared_expert_gate.weight":      g.SharedGate,
		"grad.mlp.shared_expert.gate_proj.weight": g.Shared.Gate,
		"grad.mlp.shared_expert.up_proj.weight":   g.Shared.Up,
		"grad.mlp.shared_expert.down_proj.weight": g.Shared.Down,
		"grad.mlp.experts.2.gate_proj.weight":     g.Experts[2].Gate,
		"grad.mlp.experts.2.up_proj.weight":       g.Experts[2].Up,
		"grad.mlp.experts.2.down_proj.weight":     g.Experts[2].Down,
	}
	for e := range g.Experts {
		x := &g.Experts[e]
		want["grad.mlp.experts.gate_up_proj"] = slices.Concat(want["grad.mlp.experts.gate_up_proj"], x.Gate, x.Up)
		want["grad.mlp.experts.down_proj"] = append(want["grad.mlp.experts.down_proj"], x.Down...)
	}
	found, w := 0, s.NewWeights()
	for _, fused := range []bool{false, true} {
		for _, entry := range (checkpoint.Layout{Prefix: checkpoint.Prefix, Block: checkpoint.MLP, Fused: fused}).Entries(7, s) {
			values, ok := want["grad."+entry.Short]
			if !ok {
				continue
			}
			found++
			checkWritten(t, gradient(entry, g, nil), bits.Of("", entry.Shape, values))
			for _, p := range entry.Parts {
				round(*p.In(w), *p.InGradients(g))
			}
			rounded := make([]contract.BF16, len(values))
			round(rounded, values)
			checkWritten(t, gradient(entry, nil, w), bits.Of("", entry.Shape, rounded))
		}
	}
	if found != 8+7 {
		t.Errorf("%d tensors were looked at: need 15", found)
	}
}

func round(dst []contract.BF16, src []float32) {
	for i, v := range src {
		dst[i] = contract.Round(v)
	}
}

func checkWritten(t *testing.T, out safetensors.Out, want safetensors.Tensor) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out.safetensors")
	if err := safetensors.Write(path, []safetensors.Out{out}, nil); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, _ := f.Tensor(out.Name)
	if got.Dtype != want.Dtype || !slices.Equal(got.Shape, want.Shape) || !bytes.Equal(got.Data, want.Data) {
		t.Errorf("%s: another tensor than the one wanted", out.Name)
	}
}

// A file is replaced by another, whole, and never written over: what a reader has open stays, and so does the file where the new one
// fails on the way.
func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lines.txt")
	k := &keeper{path: path}
	if _, err := k.Write([]byte("one\n")); err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := k.Write([]byte("two\n")); err != nil {
		t.Fatal(err)
	}
	if old, err := io.ReadAll(reader); err != nil || string(old) != "one\n" {
		t.Errorf("the file that was open has %q, %v", old, err)
	}
	full := errors.New("the disk is full")
	err = replaceFile(path, func(w io.Writer) error {
		_, err := w.Write([]byte("on"))
		return errors.Join(err, full)
	})
	if !errors.Is(err, full) {
		t.Errorf("error %v, want that of the writing", err)
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != "one\ntwo\n" {
		t.Errorf("the file has %q, %v", now, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}
