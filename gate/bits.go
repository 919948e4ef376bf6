// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/checkpoint/safetensors"
	kept "github.com/samebit/samebit/contract/testdata"
	"github.com/samebit/samebit/internal/bits"
)

// contractBits compares the embedded layer with the contract's bits, which were kept when the contract was written.
func contractBits(c *check) {
	if c.Name != embedded || c.Options.RouterLogits != samebit.FP32 || c.Options.NormTopK != nil {
		c.skip("no bits were kept of this layer: need the checkpoint inside the program, with its own options")
	}
	f, err := safetensors.Parse(embedded+".safetensors", kept.Qwen3Next)
	c.must(err)
	p := c.run(c.stored().work())
	n := len(p.y) / c.Shape.Hidden
	tensors := []safetensors.Tensor{
		bits.Of("y", []int{n, c.Shape.Hidden}, p.y),
		bits.Of("dx", []int{n, c.Shape.Hidden}, p.dx),
		bits.Of("logits", []int{n, c.Shape.Experts}, p.logits),
		bits.Of("topk_ids", []int{n, c.Shape.TopK}, p.ids),
		bits.Of("topk_weights", []int{n, c.Shape.TopK}, p.weights),
	}
	for _, e := range c.layer.Tensors {
		tensors = append(tensors, bits.Of("grad."+e.Short, e.Shape, gradientOf(e, p)))
	}
	var have, need []tensor
	for _, t := range tensors {
		want, ok := f.Tensor(t.Name)
		if !ok {
			c.must(fmt.Errorf("%s: tensor %q: found none: need it", f.Path(), t.Name))
		}
		have, need = append(have, tensor{t.Name, axes, []safetensors.Tensor{t}}), append(need, tensor{t.Name, axes, []safetensors.Tensor{want}})
	}
	c.same("the bits that were kept", have, need)
}

var axes = []string{"row", "column"}

// gradientOf is the gradient of a tensor of one matrix.
func gradientOf(e checkpoint.Entry, p pass) []float32 { return *e.Parts[0].InGradients(p.grads) }
