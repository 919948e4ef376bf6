// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/bits"
	"github.com/samebit/samebit/internal/tidy"
	"github.com/samebit/samebit/internal/ui"
)

// outputInfo is a tensor that was written.
type outputInfo struct {
	Name   string            `json:"name"`
	Dtype  safetensors.Dtype `json:"dtype"`
	Shape  []int             `json:"shape"`
	Digest string            `json:"digest"` // package bits says of what
}

// gradPrefix stands before the names of weights' gradients.
const gradPrefix = "grad."

// write writes the results, and notes their digests on the way.
func (c *runCommand) write(e *env, layer *samebit.Layer, got *results) error {
	s, tokens := layer.Shape(), c.Result.Tokens
	outs := []safetensors.Out{
		safetensors.New("y", []int{tokens, s.Hidden}, got.Y),
		safetensors.New("logits", []int{tokens, s.Experts}, got.Logits),
		safetensors.New("topk_ids", []int{tokens, s.TopK}, got.IDs),
		safetensors.New("topk_weights", []int{tokens, s.TopK}, got.Weights),
	}
	if c.Backward {
		outs = append(outs, safetensors.New("dx", []int{tokens, s.Hidden}, got.dx))
		for _, entry := range layer.Tensors() {
			outs = append(outs, gradient(entry, got.fp32, got.bf16))
		}
	}
	progress := e.progress("writing " + c.Out)
	defer progress.Close()
	m := meter{progress: progress}
	digest := make([]func() string, len(outs))
	for i := range outs {
		outs[i], digest[i] = bits.Hashed(outs[i])
		outs[i].Stream = m.metered(outs[i])
	}
	// Nothing that changes from one run to the next: the same bits make the same file.
	if err := safetensors.Write(c.Out, outs, map[string]string{"contract": strconv.Itoa(contract.Version)}); err != nil {
		return err
	}
	for i, o := range outs {
		c.Result.Outputs = append(c.Result.Outputs, outputInfo{o.Name, o.Dtype, o.Shape, digest[i]()})
	}
	c.Result.Digest = digestOf(c.Result.Outputs)
	return nil
}

// meter shows how much of some tensors is written.
type meter struct {
	progress    *ui.Progress
	done, total int64
}

// metered is what o streams, counted.
func (m *meter) metered(o safetensors.Out) func(io.Writer) error {
	n := int64(o.Dtype.Bits() / 8)
	for _, d := range o.Shape {
		n *= int64(d)
	}
	m.total += n
	return func(w io.Writer) error { return o.Stream(io.MultiWriter(w, m)) }
}

func (m *meter) Write(p []byte) (int, error) {
	m.done += int64(len(p))
	m.progress.Set(m.done, m.total)
	return len(p), nil
}

// gradient is the gradient of one of the checkpoint's tensors, in its shape, from where it lies: one of the two.
func gradient(entry checkpoint.Entry, fp32 *contract.Gradients, bf16 *contract.Weights) safetensors.Out {
	name := gradPrefix + entry.Short
	if bf16 != nil {
		return joined(name, entry, func(p checkpoint.Part) []samebit.BF16 { return *p.In(bf16) })
	}
	return joined(name, entry, func(p checkpoint.Part) []float32 { return *p.InGradients(fp32) })
}

// joined is a tensor of its parts.
func joined[T safetensors.Element](name string, entry checkpoint.Entry, part func(checkpoint.Part) []T) safetensors.Out {
	var parts [][]T
	for _, p := range entry.Parts {
		parts = append(parts, part(p))
	}
	return safetensors.New(name, entry.Shape, parts...)
}

// digestOf is one digest of outputs.
func digestOf(outputs []outputInfo) string {
	digests := map[string]string{}
	for _, o := range outputs {
		digests[o.Name] = o.Digest
	}
	return bits.DigestOf(digests)
}

// showOutputs prints the outputs; the weights' gradients, which may be thousands, are one line.
func showOutputs(p *ui.Printer, outputs []outputInfo) {
	var rows []ui.Row
	var grads []outputInfo
	for _, o := range outputs {
		if strings.HasPrefix(o.Name, gradPrefix) {
			grads = append(grads, o)
			continue
		}
		rows = append(rows, ui.Row{o.Name, bits.Kind(o.Dtype, o.Shape), o.Digest})
	}
	if grads != nil {
		rows = append(rows, ui.Row{gradPrefix + "*", fmt.Sprintf("%s, %d tensors", grads[0].Dtype, len(grads)), digestOf(grads)})
	}
	p.Table(ui.Row{"output", "kind", "digest"}, rows...)
}

func sameFolder(a, b string) bool {
	one, err := os.Stat(a)
	other, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(one, other)
}

// writable says, before long work, whether a file can be made at path without a loss: nothing but a plain file that is not one
// of the inputs is replaced.
func writable(path string, inputs ...string) error {
	if path == "" {
		return errors.New("found no name of a file to write: need one")
	}
	if info, err := os.Lstat(path); err == nil {
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s: found %s: need a new name, or that of a plain file", path, kindOf(info.Mode()))
		}
		for _, in := range inputs {
			if other, err := os.Stat(in); err == nil && os.SameFile(info, other) {
				return fmt.Errorf("%s: found an input of this run: need another name", path)
			}
		}
	}
	var f *os.File
	done, err := tidy.Make(func() (_ string, err error) {
		if f, err = os.CreateTemp(filepath.Dir(path), ".samebit-*"); err != nil {
			return "", err
		}
		return f.Name(), nil
	})
	if err != nil {
		var p *fs.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return fmt.Errorf("%s: cannot be written: %w", path, err)
	}
	defer done()
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// replaceFile puts what write writes at path, in place of what is there: whole or not at all.
func replaceFile(path string, write func(io.Writer) error) (err error) {
	name := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s-%x", filepath.Base(path), rand.Uint64()))
	var f *os.File
	done, err := tidy.Make(func() (_ string, err error) {
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		return name, err
	})
	if err != nil {
		return err
	}
	defer done()
	defer os.Remove(name) // nothing, once it has been moved into place
	if err := errors.Join(write(f), f.Close()); err != nil {
		return err
	}
	return os.Rename(name, path)
}

// kindOf says for people what is not a plain file.
func kindOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a folder"
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}
