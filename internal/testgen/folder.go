// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package testgen

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
)

// shardSize is how many bytes a shard may have before the next is begun.
const shardSize = 4 << 30

// WriteCheckpoint writes a folder laid out as Hugging Face lays out a qwen3_next checkpoint, or a qwen3_moe one where the shape
// has no shared expert: config.json, shards of at most about 4 GB, their index. It holds the mixture-of-experts layers and
// nothing else. Weights are made as they are written, so it takes little memory. The folder appears whole or not at all.
// Where progress is not nil, it is told how many bytes of weights are written.
func WriteCheckpoint(dir, shape string, layers int, seed uint64, progress func(done, total int64)) error {
	s, err := Shape(shape)
	if err != nil {
		return err
	}
	if layers < 1 {
		return fmt.Errorf("checkpoint %s: found %d layers: need at least 1", dir, layers)
	}
	w := writer{shape: s, layers: layers, seed: seed, limit: shardSize, progress: progress}
	return checkpoint.CreateFolder(dir, w.write)
}

// writer writes the weights of a folder.
type writer struct {
	shape       contract.Shape
	layers      int
	seed        uint64
	limit       int64 // bytes in a shard
	progress    func(done, total int64)
	done, total int64
	shards      [][]safetensors.Out
	room        int64 // in the last shard
}

// add puts a layer's tensors into shards.
func (w *writer) add(layer int) {
	for _, e := range layout.Entries(layer, w.shape) {
		part := e.Parts[0] // this layout has one a tensor
		n := part.Len(w.shape)
		size := 2 * int64(n)
		if size > w.room {
			w.shards, w.room = append(w.shards, nil), w.limit
		}
		w.room -= size
		w.total += size
		last := &w.shards[len(w.shards)-1]
		*last = append(*last, safetensors.Out{Name: e.Name, Dtype: safetensors.BF16, Shape: e.Shape, Stream: func(to io.Writer) error {
			return w.stream(to, n, Stream(layer, part))
		}})
	}
}

func (w *writer) stream(to io.Writer, n int, stream uint64) error {
	buffer := make([]contract.BF16, min(n, 1<<22))
	for offset := 0; offset < n; offset += len(buffer) {
		values := buffer[:min(len(buffer), n-offset)]
		FillAt(values, offset, w.seed, stream, WeightScale)
		if _, err := to.Write(safetensors.Bytes(values)); err != nil {
			return err
		}
		w.done += 2 * int64(len(values))
		if w.progress != nil {
			w.progress(w.done, w.total)
		}
	}
	return nil
}

// write fills dir.
func (w *writer) write(dir string) error {
	for layer := range w.layers {
		w.add(layer)
	}
	weightMap := map[string]string{}
	for i, tensors := range w.shards {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(w.shards))
		for _, t := range tensors {
			weightMap[t.Name] = name
		}
		if err := safetensors.Write(filepath.Join(dir, name), tensors, map[string]string{"format": "pt"}); err != nil {
			return err
		}
	}
	err := writeJSON(filepath.Join(dir, "model.safetensors.index.json"), map[string]any{
		"metadata":   map[string]any{"total_size": w.total},
		"weight_map": weightMap,
	})
	if err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, "config.json"), config(w.shape, w.layers))
}

func config(s contract.Shape, layers int) map[string]any {
	c := map[string]any{
		"architectures":         []string{"Qwen3MoeForCausalLM"},
		"model_type":            "qwen3_moe",
		"dtype":                 "bfloat16",
		"hidden_act":            "silu",
		"hidden_size":           s.Hidden,
		"num_experts":           s.Experts,
		"num_experts_per_tok":   s.TopK,
		"moe_intermediate_size": s.Width,
		"norm_topk_prob":        s.NormTopK,
		"num_hidden_layers":     layers,
		"decoder_sparse_step":   1,
		"mlp_only_layers":       []int{},
	}
	if s.SharedWidth > 0 {
		c["architectures"] = []string{"Qwen3NextForCausalLM"}
		c["model_type"] = "qwen3_next"
		c["shared_expert_intermediate_size"] = s.SharedWidth
	}
	return c
}

func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o666)
}
