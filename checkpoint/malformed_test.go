// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
)

const gate0 = "model.layers.1.mlp.experts.0.gate_proj.weight"

// spoilt are folders with one thing wrong, and what is said of it when layer 1 is asked for; DIR/ stands for the folder.
var spoilt = []struct {
	name  string
	spoil func(f *fixture)
	want  string
}{
	// config.json
	{"no config", func(f *fixture) { f.spoil = remove("config.json") }, `checkpoint DIR: found no config.json: need it: file does not exist`},
	{"config is no JSON", func(f *fixture) { f.spoil = replace("config.json", `{"a"`) }, `checkpoint DIR: config.json: invalid JSON: unexpected EOF`},
	{"config is a list", func(f *fixture) { f.spoil = replace("config.json", `[]`) }, `checkpoint DIR: config.json: found [: need an object`},
	{"a field twice", func(f *fixture) { f.spoil = replace("config.json", `{"hidden_size":1,"hidden_size":2}`) }, `checkpoint DIR: config.json: "hidden_size" is there twice: need each name once`},
	{"no model_type", func(f *fixture) { delete(f.config, "model_type") }, `checkpoint DIR: config.json: found no model_type: need it`},
	{"unknown model_type", func(f *fixture) { f.config["model_type"] = "llama" }, `checkpoint DIR: config.json: found model_type "llama": need one of [mixtral olmoe qwen2_moe qwen3_5_moe qwen3_5_moe_text qwen3_moe qwen3_next]`},
	{"model_type of the wrong type", func(f *fixture) { f.config["model_type"] = 3 }, `checkpoint DIR: config.json: found model_type 3: need a string`},
	{"no hidden_size", func(f *fixture) { delete(f.config, "hidden_size") }, `checkpoint DIR: config.json: found no hidden_size: need it`},
	{"hidden_size null", func(f *fixture) { f.config["hidden_size"] = nil }, `checkpoint DIR: config.json: found no hidden_size: need it`},
	{"hidden_size of the wrong type", func(f *fixture) { f.config["hidden_size"] = "8" }, `checkpoint DIR: config.json: found hidden_size "8": need a whole number`},
	{"hidden_size a fraction", func(f *fixture) { f.config["hidden_size"] = 8.5 }, `checkpoint DIR: config.json: found hidden_size 8.5: need a whole number`},
	{"hidden_size beyond the bound", func(f *fixture) { f.config["hidden_size"] = 1 << 30 }, `checkpoint DIR: config.json: found hidden_size 1073741824: need 1 to 16777216`},
	{"no number of experts", func(f *fixture) { delete(f.config, "num_experts") }, `checkpoint DIR: config.json: found neither num_experts nor num_local_experts: need one`},
	{"numbers of experts differ", func(f *fixture) { f.config["num_local_experts"] = 5 }, `checkpoint DIR: config.json: found num_experts 4 and num_local_experts 5: need them to be equal`},
	{"no experts", func(f *fixture) { f.config["num_experts"] = 0 }, `checkpoint DIR: config.json: found num_experts 0: need 1 to 65536`},
	{"more routes than experts", func(f *fixture) { f.config["num_experts_per_tok"] = 5 }, `checkpoint DIR: config.json: shape: top-k 5: need 1 to 4, the number of experts`},
	{"no moe_intermediate_size", func(f *fixture) { delete(f.config, "moe_intermediate_size") }, `checkpoint DIR: config.json: found no moe_intermediate_size: need it`},
	{"negative shared width", func(f *fixture) { f.config["shared_expert_intermediate_size"] = -1 }, `checkpoint DIR: config.json: found shared_expert_intermediate_size -1: need 0 to 16777216`},
	{"gelu", func(f *fixture) { f.config["hidden_act"] = "gelu" }, `checkpoint DIR: config.json: found hidden_act "gelu": need "silu"`},
	{"norm of the wrong type", func(f *fixture) { f.config["norm_topk_prob"] = 1 }, `checkpoint DIR: config.json: found norm_topk_prob 1: need true or false`},
	{"norm against the model", func(f *fixture) { f.config["model_type"] = "qwen3_5_moe"; f.config["norm_topk_prob"] = false }, `checkpoint DIR: config.json: found norm_topk_prob false: need true, all that qwen3_5_moe does`},
	{"list of the wrong type", func(f *fixture) { f.config["mlp_only_layers"] = "none" }, `checkpoint DIR: config.json: found mlp_only_layers "none": need a list of whole numbers`},
	{"step of 0", func(f *fixture) { f.config["decoder_sparse_step"] = 0 }, `checkpoint DIR: config.json: found decoder_sparse_step 0: need 1 to 65536`},
	{"text_config of the wrong type", func(f *fixture) { f.config["text_config"] = 1 }, `checkpoint DIR: config.json: text_config: found 1: need an object`},
	{"layer out of range", func(f *fixture) { f.config["num_hidden_layers"] = 1 }, `checkpoint DIR: layer 1: found num_hidden_layers 1: need a layer from 0 to 0`},
	{"dense by list", func(f *fixture) { f.config["mlp_only_layers"] = []int{1} }, `checkpoint DIR: layer 1: found a dense layer (mlp_only_layers [1], decoder_sparse_step 1): need a mixture of experts`},
	{"dense by step", func(f *fixture) { f.config["decoder_sparse_step"] = 3 }, `checkpoint DIR: layer 1: found a dense layer (mlp_only_layers [], decoder_sparse_step 3): need a mixture of experts`},

	// The index and the shards.
	{"no weights", func(f *fixture) { f.index, f.shards = nil, nil }, `checkpoint DIR: found neither model.safetensors nor model.safetensors.index.json: need one`},
	{"index and single file", func(f *fixture) { f.spoil = replace("model.safetensors", "") }, `checkpoint DIR: found both model.safetensors and model.safetensors.index.json: need one`},
	{"index without map", func(f *fixture) { f.spoil = replace("model.safetensors.index.json", `{"metadata":{}}`) }, `checkpoint DIR: model.safetensors.index.json: found no weight_map: need it`},
	{"index is no JSON", func(f *fixture) { f.spoil = replace("model.safetensors.index.json", `{"weight_map":{"a":}`) }, `checkpoint DIR: model.safetensors.index.json: tensor "a": invalid JSON: invalid character '}' looking for beginning of value`},
	{"index names a tensor twice", func(f *fixture) {
		f.spoil = replace("model.safetensors.index.json", `{"weight_map":{"a":"`+shard1+`","a":"`+shard2+`"}}`)
	}, `checkpoint DIR: model.safetensors.index.json: "a" is there twice: need each name once`},
	{"index names no file", func(f *fixture) { f.index[gate0] = "../x.safetensors" }, `checkpoint DIR: model.safetensors.index.json: tensor "model.layers.1.mlp.experts.0.gate_proj.weight": found shard "../x.safetensors": need the name of a file in the folder`},
	{"index maps to a number", func(f *fixture) { f.spoil = replace("model.safetensors.index.json", `{"weight_map":{"a":1}}`) }, `checkpoint DIR: model.safetensors.index.json: tensor "a": found 1: need a string`},
	{"absent shard", func(f *fixture) { f.spoil = remove(shard2) }, `checkpoint DIR: model.safetensors.index.json: tensor "model.layers.1.mlp.experts.0.down_proj.weight": found no shard model-00002-of-00002.safetensors: need it: file does not exist`},
	{"index names a tensor that is nowhere", func(f *fixture) { f.index["model.norm.weight"] = shard2 }, `checkpoint DIR: model.safetensors.index.json: tensor "model.norm.weight": found in no shard: need it in DIR/model-00002-of-00002.safetensors`},
	{"index names the other shard", func(f *fixture) { f.index[gate0] = shard2 }, `checkpoint DIR: model.safetensors.index.json: tensor "model.layers.1.mlp.experts.0.gate_proj.weight": found in DIR/model-00001-of-00002.safetensors: need it in DIR/model-00002-of-00002.safetensors`},
	{"index lacks a tensor", func(f *fixture) { delete(f.index, gate0) }, `checkpoint DIR: model.safetensors.index.json: tensor "model.layers.1.mlp.experts.0.gate_proj.weight": found in DIR/model-00001-of-00002.safetensors but not in the index: need it in both`},
	{"tensor in two shards", func(f *fixture) { f.add(shard2, gate0, 3, 8) }, `checkpoint DIR: tensor "model.layers.1.mlp.experts.0.gate_proj.weight": found in both DIR/model-00001-of-00002.safetensors and DIR/model-00002-of-00002.safetensors: need it once`},
	{"truncated shard", func(f *fixture) { f.spoil = truncate(shard2, -1) }, `checkpoint DIR: DIR/model-00002-of-00002.safetensors: tensor "mtp.layers.0.mlp.experts.0.gate_proj.weight": found data up to byte 784: need at most 783, the data section's size`},
	{"shard cut in its header", func(f *fixture) { f.spoil = truncate(shard1, 100) }, `checkpoint DIR: DIR/model-00001-of-00002.safetensors: found a header of 2352 bytes in a file of 100: need at most 92`},
	{"empty shard", func(f *fixture) { f.spoil = truncate(shard1, 0) }, `checkpoint DIR: DIR/model-00001-of-00002.safetensors: found 0 bytes: need at least 8, the header's length`},
	{"truncated single file", func(f *fixture) { f.single(); f.spoil = truncate("model.safetensors", -2) }, `checkpoint DIR: DIR/model.safetensors: tensor "mtp.layers.0.mlp.experts.0.gate_proj.weight": found data up to byte 1920: need at most 1918, the data section's size`},

	// The tensors of the layer.
	{"no router", func(f *fixture) { f.drop("model.layers.1.mlp.gate.weight") }, `checkpoint DIR: layer 1: tensor "model.layers.1.mlp.gate.weight": found none: need BF16 [4 8]`},
	{"no gate", func(f *fixture) { f.drop(gate0) }, `checkpoint DIR: layer 1: tensor "model.layers.1.mlp.experts.0.gate_proj.weight": found none: need BF16 [3 8]`},
	{"no last expert", func(f *fixture) { f.drop("model.layers.1.mlp.experts.3.down_proj.weight") }, `checkpoint DIR: layer 1: tensor "model.layers.1.mlp.experts.3.down_proj.weight": found none: need BF16 [8 3]`},
	{"no shared expert", func(f *fixture) { f.drop("model.layers.1.mlp.shared_expert.up_proj.weight") }, `checkpoint DIR: layer 1: tensor "model.layers.1.mlp.shared_expert.up_proj.weight": found none: need BF16 [5 8]`},
	{"no shared gate", func(f *fixture) { f.drop("model.layers.1.mlp.shared_expert_gate.weight") }, `checkpoint DIR: layer 1: tensor "model.layers.1.mlp.shared_expert_gate.weight": found none: need BF16 [1 8]`},
	{"shared expert that the config lacks", func(f *fixture) { delete(f.config, "shared_expert_intermediate_size") }, `checkpoint DIR: layer 1: DIR/model-00002-of-00002.safetensors: tensor "model.layers.1.mlp.shared_expert.down_proj.weight": found it in the layer's block, where nothing needs it (4 such in all): need it gone, or another config.json`},
	{"one expert more", func(f *fixture) { f.add(shard1, "model.layers.1.mlp.experts.4.up_proj.weight", 3, 8) }, `checkpoint DIR: layer 1: DIR/model-00001-of-00002.safetensors: tensor "model.layers.1.mlp.experts.4.up_proj.weight": found it in the layer's block, where nothing needs it (1 such in all): need it gone, or another config.json`},
	{"expert 01", func(f *fixture) { f.add(shard1, "model.layers.1.mlp.experts.01.up_proj.weight", 3, 8) }, `checkpoint DIR: layer 1: DIR/model-00001-of-00002.safetensors: tensor "model.layers.1.mlp.experts.01.up_proj.weight": found it in the layer's block, where nothing needs it (1 such in all): need it gone, or another config.json`},
	{"a bias", func(f *fixture) { f.add(shard1, "model.layers.1.mlp.gate.bias", 4) }, `checkpoint DIR: layer 1: DIR/model-00001-of-00002.safetensors: tensor "model.layers.1.mlp.gate.bias": found it in the layer's block, where nothing needs it (1 such in all): need it gone, or another config.json`},
	{"both layouts", func(f *fixture) { f.add(shard2, "model.layers.1.mlp.experts.gate_up_proj", 4, 6, 8) }, `checkpoint DIR: layer 1: found both "model.layers.1.mlp.experts.3.up_proj.weight" and "model.layers.1.mlp.experts.gate_up_proj": need one layout, an expert a tensor or all in one`},
	{"both blocks", func(f *fixture) { f.add(shard2, "model.layers.1.block_sparse_moe.gate.weight", 4, 8) }, `checkpoint DIR: layer 1: found both "model.layers.1.block_sparse_moe.gate.weight" and "model.layers.1.mlp.shared_expert_gate.weight": need one of the two blocks`},
	{"both prefixes", func(f *fixture) { f.add(shard2, "model.language_model.layers.1.mlp.gate.weight", 4, 8) }, `checkpoint DIR: layer 1: found both "model.language_model.layers.1.mlp.gate.weight" and "model.layers.1.mlp.shared_expert_gate.weight": need one of the two blocks`},
	{"no layer 1", func(f *fixture) {
		for _, e := range split.Entries(1, small) {
			f.drop(e.Name)
		}
	}, `checkpoint DIR: layer 1: found no tensor under any of [model.language_model.layers.1.block_sparse_moe. model.language_model.layers.1.mlp. model.layers.1.block_sparse_moe. model.layers.1.mlp.]: need the layer's weights`},
	{"swapped shape", func(f *fixture) { f.add(shard1, gate0, 8, 3) }, `checkpoint DIR: layer 1: DIR/model-00001-of-00002.safetensors: tensor "model.layers.1.mlp.experts.0.gate_proj.weight": found BF16 [8 3]: need BF16 [3 8]`},
	{"flat shape", func(f *fixture) { f.add(shard1, gate0, 24) }, `checkpoint DIR: layer 1: DIR/model-00001-of-00002.safetensors: tensor "model.layers.1.mlp.experts.0.gate_proj.weight": found BF16 [24]: need BF16 [3 8]`},
	{"shared gate without its row", func(f *fixture) { f.add(shard2, "model.layers.1.mlp.shared_expert_gate.weight", 8) }, `checkpoint DIR: layer 1: DIR/model-00002-of-00002.safetensors: tensor "model.layers.1.mlp.shared_expert_gate.weight": found BF16 [8]: need BF16 [1 8]`},
	{"F32", func(f *fixture) { f.set(shard1, safetensors.New(gate0, []int{3, 8}, make([]float32, 24))) }, `checkpoint DIR: layer 1: DIR/model-00001-of-00002.safetensors: tensor "model.layers.1.mlp.experts.0.gate_proj.weight": found F32 [3 8]: need BF16 [3 8]`},
	{"F16", func(f *fixture) { f.set(shard1, dtype(gate0, "F16", 48)) }, `checkpoint DIR: layer 1: DIR/model-00001-of-00002.safetensors: tensor "model.layers.1.mlp.experts.0.gate_proj.weight": found F16 [3 8]: need BF16 [3 8]`},
	{"F8", func(f *fixture) { f.set(shard1, dtype(gate0, "F8_E4M3", 24)) }, `checkpoint DIR: layer 1: DIR/model-00001-of-00002.safetensors: tensor "model.layers.1.mlp.experts.0.gate_proj.weight": found F8_E4M3 [3 8]: need BF16 [3 8]`},
	{"infinity", func(f *fixture) { f.values(gate0)[23] = 0xFF80 }, `checkpoint DIR: layer 1: DIR/model-00001-of-00002.safetensors: tensor "model.layers.1.mlp.experts.0.gate_proj.weight": found -Inf (0xFF80) at element 23 of [3 8]: need finite weights`},
	{"NaN", func(f *fixture) { f.values("model.layers.1.mlp.gate.weight")[5] = contract.Round(float32(math.NaN())) }, `checkpoint DIR: layer 1: DIR/model-00001-of-00002.safetensors: tensor "model.layers.1.mlp.gate.weight": found NaN (0x7FC0) at element 5 of [4 8]: need finite weights`},
	{"two infinities", func(f *fixture) {
		f.values("model.layers.1.mlp.shared_expert_gate.weight")[0] = 0x7F80
		f.values("model.layers.1.mlp.experts.2.up_proj.weight")[1] = 0x7F80
	}, `checkpoint DIR: layer 1: DIR/model-00002-of-00002.safetensors: tensor "model.layers.1.mlp.experts.2.up_proj.weight": found +Inf (0x7F80) at element 1 of [3 8]: need finite weights`},
}

// spoiltFused are the same for the fused layout.
var spoiltFused = []struct {
	name  string
	spoil func(f *fixture)
	want  string
}{
	{"no gate_up_proj", func(f *fixture) { f.drop("model.layers.1.mlp.experts.gate_up_proj") }, `checkpoint DIR: layer 1: tensor "model.layers.1.mlp.experts.gate_up_proj": found none: need BF16 [4 6 8]`},
	{"no down_proj", func(f *fixture) { f.drop("model.layers.1.mlp.experts.down_proj") }, `checkpoint DIR: layer 1: tensor "model.layers.1.mlp.experts.down_proj": found none: need BF16 [4 8 3]`},
	{"up_proj too", func(f *fixture) { f.add(shard1, "model.layers.1.mlp.experts.up_proj", 4, 3, 8) }, `checkpoint DIR: layer 1: DIR/model-00001-of-00002.safetensors: tensor "model.layers.1.mlp.experts.up_proj": found it in the layer's block, where nothing needs it (1 such in all): need it gone, or another config.json`},
	{"transposed", func(f *fixture) { f.add(shard1, "model.layers.1.mlp.experts.gate_up_proj", 4, 8, 6) }, `checkpoint DIR: layer 1: DIR/model-00001-of-00002.safetensors: tensor "model.layers.1.mlp.experts.gate_up_proj": found BF16 [4 8 6]: need BF16 [4 6 8]`},
	{"an expert too few", func(f *fixture) { f.add(shard1, "model.layers.1.mlp.experts.down_proj", 3, 8, 3) }, `checkpoint DIR: layer 1: DIR/model-00001-of-00002.safetensors: tensor "model.layers.1.mlp.experts.down_proj": found BF16 [3 8 3]: need BF16 [4 8 3]`},
	{"one matrix of the other layout", func(f *fixture) { f.add(shard1, "model.layers.1.mlp.experts.3.down_proj.weight", 8, 3) }, `checkpoint DIR: layer 1: found both "model.layers.1.mlp.experts.3.down_proj.weight" and "model.layers.1.mlp.experts.gate_up_proj": need one layout, an expert a tensor or all in one`},
	{"NaN", func(f *fixture) { f.values("model.layers.1.mlp.experts.gate_up_proj")[190] = 0x7FC0 }, `checkpoint DIR: layer 1: DIR/model-00001-of-00002.safetensors: tensor "model.layers.1.mlp.experts.gate_up_proj": found NaN (0x7FC0) at element 190 of [4 6 8]: need finite weights`},
}

func TestRefuses(t *testing.T) {
	for _, c := range spoilt {
		t.Run(c.name, func(t *testing.T) { refuses(t, newFixture(split), c.spoil, c.want) })
	}
	for _, c := range spoiltFused {
		t.Run("fused/"+c.name, func(t *testing.T) { refuses(t, newFixture(fused), c.spoil, c.want) })
	}
}

func refuses(t *testing.T, f *fixture, spoil func(f *fixture), want string) {
	t.Helper()
	spoil(f)
	dir := f.write(t)
	c, err := checkpoint.Open(dir)
	if err == nil {
		_, err = c.Layer(1)
		defer c.Close()
	}
	got := ""
	if err != nil {
		got = strings.ReplaceAll(filepath.ToSlash(err.Error()), filepath.ToSlash(dir), "DIR")
	}
	if got != want || want == "" {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// dtype is a tensor of that many zero bytes.
func dtype(name string, d safetensors.Dtype, size int) safetensors.Out {
	return safetensors.Out{Name: name, Dtype: d, Shape: []int{3, 8}, Parts: [][]byte{make([]byte, size)}}
}

func remove(name string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func replace(name, text string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, name), text) }
}

// truncate cuts a file to size bytes, counted from its end where it is negative.
func truncate(name string, size int64) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err == nil && size < 0 {
			size += info.Size()
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
	}
}

// A layer that is right in every layout, prefix and block, beside mtp.* tensors.
func TestAccepts(t *testing.T) {
	for _, prefix := range []string{checkpoint.Prefix, checkpoint.LanguagePrefix} {
		for _, block := range []string{checkpoint.MLP, checkpoint.SparseMoE} {
			for _, f := range []bool{false, true} {
				l := checkpoint.Layout{Prefix: prefix, Block: block, Fused: f}
				t.Run(fmt.Sprint(l), func(t *testing.T) {
					got := layer(t, open(t, newFixture(l).write(t)), 1)
					if got.Layout != l {
						t.Errorf("layout: got %v, want %v", got.Layout, l)
					}
				})
			}
		}
	}
}
