// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
)

// small is the shape of the folders that the tests build.
var small = contract.Shape{Hidden: 8, Experts: 4, TopK: 2, Width: 3, SharedWidth: 5, NormTopK: true}

var (
	split = checkpoint.Layout{Prefix: checkpoint.Prefix, Block: checkpoint.MLP}
	fused = checkpoint.Layout{Prefix: checkpoint.Prefix, Block: checkpoint.MLP, Fused: true}
)

// The names of two shards.
const (
	shard1 = "model-00001-of-00002.safetensors"
	shard2 = "model-00002-of-00002.safetensors"
)

// fixture is a checkpoint folder in the making: a right one, until a test spoils it.
type fixture struct {
	config map[string]any
	shards map[string]map[string]safetensors.Out // by file and tensor
	index  map[string]string                     // nil: the folder has no index
	spoil  func(t *testing.T, dir string)        // what to do to the files that are written
}

// newFixture is a qwen3_next folder of two layers: 0 in the first shard, 1 in both.
func newFixture(l checkpoint.Layout) *fixture {
	f := &fixture{
		config: map[string]any{
			"model_type": "qwen3_next", "num_hidden_layers": 2, "hidden_act": "silu", "hidden_size": small.Hidden, "num_experts": small.Experts,
			"num_experts_per_tok": small.TopK, "moe_intermediate_size": small.Width, "shared_expert_intermediate_size": small.SharedWidth,
			"intermediate_size": 5632, "norm_topk_prob": nil,
		},
		shards: map[string]map[string]safetensors.Out{shard1: {}, shard2: {}},
		index:  map[string]string{},
	}
	f.add(shard1, "model.embed_tokens.weight", 3, small.Hidden)
	f.add(shard2, "mtp.layers.0.mlp.experts.0.gate_proj.weight", 3, small.Hidden)
	for layer := range 2 {
		f.add(shard1, fmt.Sprintf("%s%d.input_layernorm.weight", l.Prefix, layer), small.Hidden)
		for i, e := range l.Entries(layer, small) {
			shard := shard1
			if layer == 1 && i > 2 {
				shard = shard2
			}
			f.add(shard, e.Name, e.Shape...)
		}
	}
	return f
}

// add puts a tensor of values of its own into a shard, and into the index.
func (f *fixture) add(shard, name string, shape ...int) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	values := make([]contract.BF16, n)
	stream := uint64(0)
	for _, c := range []byte(name) {
		stream = stream*31 + uint64(c)
	}
	testgen.Fill(values, 1, stream, 7)
	f.set(shard, safetensors.New(name, shape, values))
}

// set puts a tensor into a shard, and into the index.
func (f *fixture) set(shard string, t safetensors.Out) {
	f.shards[shard][t.Name] = t
	if f.index != nil {
		f.index[t.Name] = shard
	}
}

// drop takes a tensor out of all shards, and out of the index.
func (f *fixture) drop(name string) {
	for _, tensors := range f.shards {
		delete(tensors, name)
	}
	delete(f.index, name)
}

// values are the elements of a tensor, to be spoilt.
func (f *fixture) values(name string) []contract.BF16 {
	out := f.shards[f.index[name]][name]
	values, err := safetensors.Tensor{Name: name, Dtype: out.Dtype, Data: out.Parts[0]}.BF16()
	if err != nil {
		panic(err)
	}
	return values
}

// single moves all tensors into one model.safetensors without an index.
func (f *fixture) single() {
	all := map[string]safetensors.Out{}
	for _, tensors := range f.shards {
		maps.Copy(all, tensors)
	}
	f.shards, f.index = map[string]map[string]safetensors.Out{"model.safetensors": all}, nil
}

// write writes the folder.
func (f *fixture) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	writeJSON(t, filepath.Join(dir, "config.json"), f.config)
	if f.index != nil {
		writeJSON(t, filepath.Join(dir, "model.safetensors.index.json"), map[string]any{"metadata": map[string]any{"total_size": 1}, "weight_map": f.index})
	}
	for name, tensors := range f.shards {
		list := slices.Collect(maps.Values(tensors))
		if err := safetensors.Write(filepath.Join(dir, name), list, map[string]string{"format": "pt"}); err != nil {
			t.Fatal(err)
		}
	}
	if f.spoil != nil {
		f.spoil(t, dir)
	}
	return dir
}

func writeJSON(t *testing.T, path string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, string(data))
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// open opens a folder, until the test ends.
func open(t *testing.T, dir string) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// layer loads a layer.
func layer(t *testing.T, c *checkpoint.Checkpoint, n int) *checkpoint.Layer {
	t.Helper()
	l, err := c.Layer(n)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
