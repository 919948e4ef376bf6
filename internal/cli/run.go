// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path/filepath"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/internal/ui"
	"github.com/samebit/samebit/parallel"
)

// runCommand runs tokens of a file through a layer, and writes what comes out to another.
type runCommand struct {
	Checkpoint    string `arg:"" name:"ckpt" help:"Hugging Face folder with config.json and safetensors files." json:"checkpoint"`
	Layer         int    `required:"" placeholder:"N" help:"Number of the layer." json:"layer"`
	In            string `required:"" placeholder:"FILE" help:"safetensors file with x, and with dy and topk_ids where asked for." json:"in"`
	Out           string `required:"" placeholder:"FILE" help:"safetensors file to write." json:"out"`
	Backward      bool   `help:"Run the backward, too, from dy." json:"backward"`
	Replay        bool   `help:"Take the routes from topk_ids in place of selecting them." json:"replay"`
	Backend       string `default:"cpu" help:"What does the work; see samebit info. Changes no bit." json:"backend"`
	Workers       int    `placeholder:"N" help:"Goroutines of a CPU backend; 0 for one a processor. Changes no bit." json:"workers"`
	MaxTokens     int    `default:"4096" help:"Tokens worked on at a time, which bounds the workspace. Changes no bit." json:"max_tokens"`
	MicroBatch    int    `default:"4096" help:"Tokens of one call; 0 for all in one. Changes no bit." json:"micro_batch"`
	RouterLogits  string `enum:"fp32,bf16" default:"fp32" help:"Precision of the router logits, fp32 or bf16; bf16 rounds them, as Hugging Face and vLLM do." json:"router_logits"`
	GradDtype     string `enum:"fp32,bf16" default:"fp32" help:"Type of the weights' gradients, fp32 or bf16; bf16 is one cast at the end." json:"grad_dtype"`
	AllowRejected bool   `help:"Do not fail where tokens are rejected for a logit that is not finite." json:"allow_rejected"`
	rankFlags

	Result runResult `kong:"-" json:"result"`
}

type runResult struct {
	Device          string       `json:"device"`
	Tokens          int          `json:"tokens"`
	ForwardSeconds  float64      `json:"forward_seconds"`
	BackwardSeconds float64      `json:"backward_seconds,omitempty"`
	MaxOverMean     float64      `json:"load_max_over_mean"`
	DeadExperts     int          `json:"dead_experts"`
	Load            []int        `json:"load"` // tokens of each expert
	Rejected        int          `json:"rejected_tokens"`
	FirstRejected   *int         `json:"first_rejected_token,omitempty"`
	Outputs         []outputInfo `json:"outputs"`
	Digest          string       `json:"digest"` // of all outputs
}

func (*runCommand) Help() string {
	return `Reads from --in (T tokens, H hidden size, K routes a token):

    x         [T,H] BF16   the tokens
    dy        [T,H] BF16   the upstream gradient, with --backward
    topk_ids  [T,K] I32    experts of each token, with --replay; a row of -1 is padding

Writes to --out, which appears whole or not at all:

    y             [T,H] BF16
    logits        [T,E] F32
    topk_ids      [T,K] I32    -1 where a token did no work
    topk_weights  [T,K] F32
    dx            [T,H] BF16   with --backward, and
    grad.NAME     F32 or BF16  for each of the layer's tensors, under the checkpoint's own name
                               less its prefix: grad.mlp.experts.0.gate_proj.weight

A token of x whose logits are not finite is rejected alone; a dy that is not finite is worked with as it is, so that its token's dx and the gradients of its experts are not finite either.

A digest is the SHA-256 of a line such as "BF16 [24,128]" and then the tensor's bytes; that of several tensors, the SHA-256 of lines "digest  name" sorted by name, as sha256sum prints them.

On ranks each reads its part of the weights, and all read --in; the tokens of a call are shared out over the columns, and the first rank writes --out, which has every token and whole gradients: the same file whatever the grid.

Examples:

    samebit run Qwen3-Next-80B-A3B-Instruct --layer 3 --in x.safetensors --out y.safetensors
    samebit run ckpt --layer 0 --in xdy.safetensors --backward --out all.safetensors
    samebit run ckpt --layer 0 --in xdy.safetensors --backward --backend ref --micro-batch 7 --out ref.safetensors
    samebit compare all.safetensors ref.safetensors
    samebit run ckpt --layer 0 --in xdy.safetensors --backward --tp 2 --ep 2 --out grid.safetensors
    mpirun -np 4 samebit run ckpt --layer 0 --in xdy.safetensors --backward --tp 2 --out grid.safetensors`
}

// Run implements command.
func (c *runCommand) Run(e *env) error {
	if c.MicroBatch < 0 {
		return fmt.Errorf("--micro-batch: found %d: need at least 1, or 0 for all tokens in one call", c.MicroBatch)
	}
	ranks, err := c.join(e)
	if err != nil {
		return err
	}
	if e.rank == 0 { // which writes
		if name := filepath.Base(c.Out); checkpoint.Reads(name) && sameFolder(filepath.Dir(c.Out), c.Checkpoint) {
			return fmt.Errorf("--out: found %s in the checkpoint's folder, which would be read as a part of it: need another name", name)
		}
		shards, _ := filepath.Glob(filepath.Join(c.Checkpoint, "*"))
		if err := writable(c.Out, append(shards, c.In)...); err != nil {
			return err
		}
	}
	file, err := safetensors.Open(c.In)
	if err != nil {
		return err
	}
	defer file.Close()
	if len(ranks) == 0 {
		ranks = []*parallel.Rank{nil}
	}
	workers := make([]*worker, len(ranks))
	err = parallel.Together(ranks, func(i int, r *parallel.Rank) error {
		w := &worker{runCommand: c, env: e, rank: r, first: e.rank == 0 && i == 0}
		if err := w.open(); err != nil {
			return err
		}
		workers[i] = w
		return safetensors.Guard(func() error { return w.run(file) })
	})
	defer func() {
		for _, w := range workers {
			if w != nil {
				w.layer.Close()
			}
		}
	}()
	if err != nil {
		return err
	}
	if err := file.Check(); err != nil {
		return err
	}
	first := workers[0]
	c.note(first)
	if first.first {
		if err := c.write(e, first.layer, &first.results); err != nil {
			return err
		}
	}
	if first.Rejected.Tokens > 0 && !c.AllowRejected {
		return failf("%w; %s is written, --allow-rejected accepts it", &first.Rejected, c.Out)
	}
	return nil
}

func (c *runCommand) options() samebit.Options {
	o := samebit.Options{Backend: c.Backend, Workers: c.Workers, MaxTokens: c.MaxTokens, AllowReject: true}
	if c.RouterLogits == "bf16" {
		o.RouterLogits = samebit.BF16Logits
	}
	return o
}

// note takes what a worker has found into the record.
func (c *runCommand) note(w *worker) {
	r, load := &c.Result, w.Load()
	r.Device, r.Tokens, r.ForwardSeconds, r.BackwardSeconds = w.layer.Device(), w.tokens, w.forward, w.backward
	r.Load, r.MaxOverMean, r.DeadExperts = load.Tokens, load.MaxMean, load.Dead
	if r.Rejected = w.Rejected.Tokens; r.Rejected > 0 {
		r.FirstRejected = &w.Rejected.First
	}
}

// Show implements command.
func (c *runCommand) Show(p *ui.Printer) {
	r := &c.Result
	p.Line("%s layer %d on %s", c.Checkpoint, c.Layer, r.Device)
	p.Line("")
	rows := []ui.Row{{"tokens", r.Tokens}, {"forward", fmt.Sprintf("%.3f s", r.ForwardSeconds)}}
	if c.Backward {
		rows = append(rows, ui.Row{"backward", fmt.Sprintf("%.3f s", r.BackwardSeconds)})
	}
	rows = append(rows,
		ui.Row{"load, max/mean", fmt.Sprintf("%.2f", r.MaxOverMean)},
		ui.Row{"experts without a token", fmt.Sprintf("%d of %d", r.DeadExperts, len(r.Load))})
	if r.Rejected > 0 {
		rows = append(rows, ui.Row{"rejected tokens", p.Bad(fmt.Sprintf("%d, the first is token %d", r.Rejected, *r.FirstRejected))})
	}
	p.Table(nil, rows...)
	p.Line("")
	showOutputs(p, r.Outputs)
	p.Line("")
	p.Line("all of %s: %s", c.Out, r.Digest)
}
