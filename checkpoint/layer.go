// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
)

// Layer is one mixture-of-experts layer. The weights are slices of the checkpoint's maps: read them, and only until its Close.
type Layer struct {
	Index   int
	Shape   contract.Shape
	Layout  Layout
	Weights contract.Weights
	Tensors []Entry
}

// Layer finds the weights of layer n, reads them once and refuses those that are not finite (R13). An error names the tensor
// and the file.
func (c *Checkpoint) Layer(n int) (*Layer, error) { return c.LayerPart(n, contract.Shape.Whole) }

// LayerPart is Layer for those who need no more than a part of its weights: of the others no value is read, and what they are is not
// known. Where the part has not all of an expert's width, it is down's whole matrix that is read, since its columns lie scattered.
func (c *Checkpoint) LayerPart(n int, part func(contract.Shape) contract.Part) (*Layer, error) {
	l, found, err := c.find(n)
	if err == nil {
		of := part(l.Shape)
		for i, e := range l.Tensors {
			found[i].elements = e.within(of)
		}
		err = scan(found)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: layer %d: %w", c.name, n, err)
	}
	return l, nil
}

// find is Layer without a look at the values.
func (c *Checkpoint) find(n int) (*Layer, []piece, error) {
	if n < 0 || n >= c.config.Layers {
		return nil, nil, fmt.Errorf("found num_hidden_layers %d: need a layer from 0 to %d", c.config.Layers, c.config.Layers-1)
	}
	if !c.config.Sparse(n) {
		return nil, nil, fmt.Errorf("found a dense layer (mlp_only_layers %v, decoder_sparse_step %d): need a mixture of experts",
			c.config.MLPOnly, c.config.Step)
	}
	layout, names, err := c.layout(n)
	if err != nil {
		return nil, nil, err
	}
	l := &Layer{Index: n, Shape: c.config.Shape, Layout: layout, Tensors: layout.Entries(n, c.config.Shape)}
	l.Weights.Experts = make([]contract.Expert, l.Shape.Experts)
	if l.Shape.SharedWidth > 0 {
		l.Weights.Shared = &contract.Expert{}
	}
	var pieces []piece
	for _, e := range l.Tensors {
		p, err := c.take(e)
		if err != nil {
			return nil, nil, err
		}
		pieces = append(pieces, p)
		delete(names, e.Name)
		var data []contract.BF16
		err = safetensors.Guard(func() (err error) { // where the file has its data at an odd place, this is a copy
			data, err = p.tensor.BF16()
			return err
		})
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", p.file.Path(), err)
		}
		for _, part := range e.Parts {
			n := part.Len(l.Shape)
			*part.In(&l.Weights), data = data[:n:n], data[n:]
		}
	}
	for _, name := range sorted(names) {
		return nil, nil, fmt.Errorf(
			"%s: tensor %q: found it in the layer's block, where nothing needs it (%d such in all): need it gone, or another %s",
			c.home[name].Path(), name, len(names), configName)
	}
	return l, pieces, l.Weights.Check(l.Shape)
}

// take finds one tensor and checks what it is.
func (c *Checkpoint) take(e Entry) (piece, error) {
	file := c.home[e.Name]
	if file == nil {
		return piece{}, fmt.Errorf("tensor %q: found none: need %s %v", e.Name, safetensors.BF16, e.Shape)
	}
	t, _ := file.Tensor(e.Name)
	if t.Dtype != safetensors.BF16 || !slices.Equal(t.Shape, e.Shape) {
		return piece{}, fmt.Errorf("%s: tensor %q: found %s %v: need %s %v",
			file.Path(), e.Name, t.Dtype, t.Shape, safetensors.BF16, e.Shape)
	}
	return piece{file: file, tensor: t}, nil
}

// layout finds out how layer n is laid out, and the names of all tensors of its block.
func (c *Checkpoint) layout(n int) (Layout, map[string]bool, error) {
	blocks := map[string]Layout{}
	for _, prefix := range []string{Prefix, LanguagePrefix} {
		for _, block := range []string{MLP, SparseMoE} {
			blocks[fmt.Sprintf("%s%d.%s", prefix, n, block)] = Layout{Prefix: prefix, Block: block}
		}
	}
	names := map[string]bool{}
	inside := map[string]string{}         // a tensor of each block, by the block
	var split, fused string               // a tensor of each layout of the experts
	for _, name := range sorted(c.home) { // sorted, so that an error always names the same tensor
		for block := range blocks {
			rest, ok := strings.CutPrefix(name, block)
			if !ok {
				continue
			}
			names[name], inside[block] = true, name
			if rest, ok = strings.CutPrefix(rest, "experts."); !ok {
				continue
			}
			number, _, _ := strings.Cut(rest, ".")
			if _, err := strconv.Atoi(number); err == nil {
				split = name
			} else if rest == "gate_up_proj" || rest == "down_proj" {
				fused = name
			}
		}
	}
	switch found := sorted(inside); {
	case len(found) == 0:
		return Layout{}, nil, fmt.Errorf("found no tensor under any of %v: need the layer's weights", sorted(blocks))
	case len(found) > 1:
		return Layout{}, nil, fmt.Errorf("found both %q and %q: need one of the two blocks", inside[found[0]], inside[found[1]])
	case split != "" && fused != "":
		return Layout{}, nil, fmt.Errorf("found both %q and %q: need one layout, an expert a tensor or all in one", split, fused)
	default:
		layout := blocks[found[0]]
		layout.Fused = fused != ""
		return layout, names, nil
	}
}
