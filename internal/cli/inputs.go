// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/bits"
)

// inputs are what a run reads.
type inputs struct {
	tokens, hidden, slots int
	x, dy                 []samebit.BF16 // [T,H]; dy with --backward
	replay                []int32        // [T,K], with --replay
}

// slice are the inputs of some of the tokens.
func (in *inputs) slice(from, to int) *inputs {
	part := &inputs{tokens: to - from, hidden: in.hidden, slots: in.slots, x: in.x[from*in.hidden : to*in.hidden]}
	if in.dy != nil {
		part.dy = in.dy[from*in.hidden : to*in.hidden]
	}
	if in.replay != nil {
		part.replay = in.replay[from*in.slots : to*in.slots]
	}
	return part
}

// read takes the tensors that the flags ask for.
func (c *runCommand) read(f *safetensors.File, s contract.Shape) (*inputs, error) {
	in := &inputs{hidden: s.Hidden, slots: s.TopK}
	var err error
	if in.x, in.tokens, err = matrix(f, "x", safetensors.Tensor.BF16, anyRows, s.Hidden); err != nil {
		return nil, err
	}
	if c.Backward {
		if in.dy, _, err = matrix(f, "dy", safetensors.Tensor.BF16, in.tokens, s.Hidden); err != nil {
			return nil, err
		}
	}
	if c.Replay {
		if in.replay, _, err = matrix(f, "topk_ids", safetensors.Tensor.I32, in.tokens, s.TopK); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// anyRows lets a matrix have any number of rows.
const anyRows = -1

// matrix is a tensor of two dimensions.
func matrix[T safetensors.Element](f *safetensors.File, name string, view func(safetensors.Tensor) ([]T, error), rows, columns int) ([]T, int, error) {
	dtype := safetensors.New[T]("", nil).Dtype
	need := fmt.Sprintf("%s [T,%d]", dtype, columns)
	if rows != anyRows {
		need = bits.Kind(dtype, []int{rows, columns})
	}
	t, ok := f.Tensor(name)
	switch {
	case !ok:
		return nil, 0, fmt.Errorf("%s: found no tensor %q: need %s", f.Path(), name, need)
	case t.Dtype != dtype || len(t.Shape) != 2 || t.Shape[1] != columns || rows != anyRows && t.Shape[0] != rows:
		return nil, 0, fmt.Errorf("%s: tensor %q: found %s: need %s", f.Path(), name, bits.Kind(t.Dtype, t.Shape), need)
	}
	elements, err := view(t)
	return elements, t.Shape[0], err
}

// checkLayer refuses the number of a layer where there is no checkpoint.
func checkLayer(layer int, checkpoint string) error {
	if layer != 0 && checkpoint == "" {
		return fmt.Errorf("--layer %d: found no --checkpoint: need one that has layers", layer)
	}
	return nil
}
