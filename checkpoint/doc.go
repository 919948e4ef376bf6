// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package checkpoint reads and writes Hugging Face checkpoint folders: config.json, and the weights in model.safetensors or in
// shards that model.safetensors.index.json lists.
//
// [Open] reads the configuration and every header, [Checkpoint.Layer] finds the weights of one mixture-of-experts layer, and
// [Checkpoint.Export] writes the folder anew with some layers replaced. Tensors are found by name alone, since different ones can have
// equal shapes. Whatever is missing, left over, there twice, of another type or shape, or not finite, is an error (R13).
//
// Two layouts of the experts are known, under either of two block names:
//
//	mlp.experts.E.{gate_proj,up_proj,down_proj}.weight     one matrix a tensor, [I,H] and [H,I]
//	block_sparse_moe.experts.E.{w1,w3,w2}.weight           the same, as Mixtral names them
//	{mlp,block_sparse_moe}.experts.gate_up_proj            fused: all experts a tensor, [E,2I,H], gate rows first
//	{mlp,block_sparse_moe}.experts.down_proj               [E,H,I]
//
// beside gate.weight [E,H], the router, and, where the model has a shared expert, shared_expert.{gate,up,down}_proj.weight
// and shared_expert_gate.weight [1,H].
package checkpoint
