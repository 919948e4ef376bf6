// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/internal/testgen"
	"github.com/samebit/samebit/internal/ui"
)

// synthCommand writes made-up weights and inputs.
type synthCommand struct {
	Dir    string `arg:"" help:"Folder to make; nothing may be there." json:"dir"`
	Shape  string `required:"" placeholder:"NAME" help:"Shape of the layers: qwen3-next, qwen3-30b-a3b, mid or tiny." json:"shape"`
	Layers int    `default:"1" help:"How many layers." json:"layers"`
	Seed   uint64 `default:"0" help:"The seed: one seed gives the same bits everywhere." json:"seed"`
	Inputs string `placeholder:"FILE" help:"Write tokens x and upstream gradients dy for the shape to this safetensors file." json:"inputs,omitempty"`
	Tokens int    `default:"64" help:"How many tokens --inputs has." json:"tokens"`

	Result synthResult `kong:"-" json:"result"`
}

type synthResult struct {
	Bytes int64 `json:"bytes"` // of weights
}

func (*synthCommand) Help() string {
	return `The folder is one that Hugging Face tools take for a Qwen3-Next checkpoint, or for a Qwen3-MoE one where the shape has no shared expert: config.json, shards, their index. It holds the mixture-of-experts layers and nothing else. A layer of qwen3-next has 3.2 GB.

Weights, tokens and gradients are functions of the seed and of their place alone, in integers, so that every machine makes the same bits.

Examples:

    samebit synth /tmp/tiny --shape tiny --inputs /tmp/in.safetensors --tokens 64
    samebit run /tmp/tiny --layer 0 --in /tmp/in.safetensors --backward --out /tmp/out.safetensors`
}

// Run implements command.
func (c *synthCommand) Run(e *env) error {
	s, err := testgen.Shape(c.Shape)
	if err != nil {
		return fmt.Errorf("--shape: %w", err)
	}
	if c.Tokens < 0 || c.Tokens > mostTokens {
		return fmt.Errorf("--tokens: found %d: need 0 to %d", c.Tokens, mostTokens)
	}
	if c.Inputs != "" {
		if err := writable(c.Inputs); err != nil {
			return err
		}
	}
	progress := e.progress("writing " + c.Dir)
	err = testgen.WriteCheckpoint(c.Dir, c.Shape, c.Layers, c.Seed, func(done, total int64) {
		c.Result.Bytes = total
		progress.Set(done, total)
	})
	progress.Close()
	if err != nil || c.Inputs == "" {
		return err
	}
	shape := []int{c.Tokens, s.Hidden}
	return safetensors.Write(c.Inputs, []safetensors.Out{
		safetensors.New("x", shape, testgen.Tokens(c.Tokens, s.Hidden, c.Seed)),
		safetensors.New("dy", shape, testgen.Upstream(c.Tokens, s.Hidden, c.Seed)),
	}, nil)
}

// mostTokens is more than anyone runs at once, and still fits a machine's memory.
const mostTokens = 1 << 20

// Show implements command.
func (c *synthCommand) Show(p *ui.Printer) {
	p.Line("%s: %d layers of %s, seed %d, %s", c.Dir, c.Layers, c.Shape, c.Seed, size(c.Result.Bytes))
	if c.Inputs != "" {
		p.Line("%s: x and dy of %d tokens", c.Inputs, c.Tokens)
	}
}

// size is a number of bytes for people.
func size(n int64) string {
	for _, u := range []struct {
		name string
		unit int64
	}{{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}} {
		if n >= u.unit {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.unit), u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
