// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package testdata holds five tiny checkpoints that transformers wrote, one a model family, each with what its layer 1 gives.
//
// A folder keeps layer 1's mixture-of-experts weights (BF16) and norms, in shards. Beside them layer1-moe-io.safetensors has
// inputs and what transformers computes from them in float64: x and dy [T,H] BF16, y_f64 and dx_f64 [T,H], logits_f64 [T,E],
// topk_ids [T,K] I32, and grad_f64.*, the weights' gradients, in F32 and in the fused layout. So a program that carries one
// of these in its binary can check a layer wherever it runs. It carries only the folders whose functions it calls.
package testdata

import (
	"embed"
	"io/fs"
)

// IO is the file in each folder that holds layer 1's inputs and outputs.
const IO = "layer1-moe-io.safetensors"

var (
	//go:embed qwen3-next-tiny
	qwen3Next embed.FS
	//go:embed qwen3-moe-tiny
	qwen3MoE embed.FS
	//go:embed qwen2-moe-tiny
	qwen2MoE embed.FS
	//go:embed olmoe-tiny
	olmoe embed.FS
	//go:embed mixtral-tiny
	mixtral embed.FS
)

// Qwen3Next is the folder of the qwen3_next model: 16 experts, 4 routes, a shared expert, H=128, I=64.
func Qwen3Next() fs.FS { return sub(qwen3Next, "qwen3-next-tiny") }

// Folder is a checkpoint folder and its name.
type Folder struct {
	Name string
	FS   fs.FS
}

// All are the five folders.
func All() []Folder {
	var folders []Folder
	for _, f := range []Folder{
		{"qwen3-next-tiny", qwen3Next},
		{"qwen3-moe-tiny", qwen3MoE},
		{"qwen2-moe-tiny", qwen2MoE},
		{"olmoe-tiny", olmoe},
		{"mixtral-tiny", mixtral},
	} {
		folders = append(folders, Folder{f.Name, sub(f.FS, f.Name)})
	}
	return folders
}

func sub(fsys fs.FS, dir string) fs.FS {
	f, err := fs.Sub(fsys, dir)
	if err != nil {
		panic(err) // only for a name that is no path
	}
	return f
}
