// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
)

// Export writes the checkpoint to a new folder dst, with the weights of some layers replaced; replace is keyed by layer and may
// be nil. Names, layout, shards and metadata stay what they are, and so do the bytes of each tensor that is not replaced. The
// index and the other files at the top of the folder (config.json, tokenizer) are copied; folders are not. Data goes from the
// map to the file, so memory does not grow with the checkpoint. The folder appears whole or not at all. Where progress is not
// nil it is told, as it goes, how many bytes of tensors are written.
func (c *Checkpoint) Export(dst string, replace map[int]*contract.Weights, progress func(done, total int64)) error {
	replaced, err := c.replacements(replace)
	if err != nil {
		return fmt.Errorf("export %s: %w", dst, err)
	}
	e := exporter{checkpoint: c, replaced: replaced, progress: progress}
	for name, file := range c.home {
		t, _ := file.Tensor(name)
		e.total += int64(len(t.Data))
	}
	if err := CreateFolder(dst, e.fill); err != nil {
		return fmt.Errorf("export %s: %w", dst, err)
	}
	return nil
}

// replacements gives the new data of the tensors that layers in replace are made of, in parts, by name.
func (c *Checkpoint) replacements(replace map[int]*contract.Weights) (map[string][][]contract.BF16, error) {
	replaced := map[string][][]contract.BF16{}
	for n, w := range replace {
		l, _, err := c.find(n)
		if err != nil {
			return nil, fmt.Errorf("layer %d: %w", n, err)
		}
		if err := w.Check(l.Shape); err != nil {
			return nil, fmt.Errorf("layer %d: replacement: %w", n, err)
		}
		for _, e := range l.Tensors {
			for _, part := range e.Parts {
				data := *part.In(w)
				if at := nonFinite(safetensors.Bytes(data)); at >= 0 {
					return nil, fmt.Errorf("layer %d: replacement: tensor %q: found %v at element %d of its %s part: need finite weights",
						n, e.Name, data[at].Float32(), at, part.Role)
				}
				replaced[e.Name] = append(replaced[e.Name], data)
			}
		}
	}
	return replaced, nil
}

// exporter writes one folder.
type exporter struct {
	checkpoint  *Checkpoint
	replaced    map[string][][]contract.BF16
	progress    func(done, total int64)
	done, total int64
}

func (e *exporter) fill(dir string) error {
	shards := map[string]bool{}
	for _, shard := range e.checkpoint.shards {
		name := path.Base(filepath.ToSlash(shard.Path()))
		shards[name] = true
		if err := e.shard(filepath.Join(dir, name), shard); err != nil {
			return err
		}
	}
	entries, err := fs.ReadDir(e.checkpoint.fsys, ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		// Stat and not the entry's type: in a model hub's cache the files are links.
		info, err := fs.Stat(e.checkpoint.fsys, entry.Name())
		if err != nil {
			return err
		}
		if shards[entry.Name()] || !info.Mode().IsRegular() {
			continue
		}
		if err := e.copy(filepath.Join(dir, entry.Name()), entry.Name()); err != nil {
			return err
		}
	}
	return nil
}

// shard writes one shard anew.
func (e *exporter) shard(dst string, src *safetensors.File) error {
	var tensors []safetensors.Out
	for _, name := range src.Names() {
		t, _ := src.Tensor(name)
		out := safetensors.Out{Name: name, Dtype: t.Dtype, Shape: t.Shape, Parts: [][]byte{t.Data}}
		if parts, ok := e.replaced[name]; ok {
			out = safetensors.New(name, t.Shape, parts...)
		}
		parts := out.Parts
		out.Stream = func(w io.Writer) error {
			return safetensors.Guard(func() error { return e.write(w, parts) })
		}
		tensors = append(tensors, out)
	}
	if err := safetensors.Write(dst, tensors, src.Metadata()); err != nil {
		return err
	}
	return src.Check()
}

func (e *exporter) write(w io.Writer, parts [][]byte) error {
	for _, part := range parts {
		n, err := w.Write(part)
		if err != nil {
			return err
		}
		e.done += int64(n)
	}
	if e.progress != nil {
		e.progress(e.done, e.total)
	}
	return nil
}

func (e *exporter) copy(dst, name string) (err error) {
	from, err := e.checkpoint.fsys.Open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Create(dst)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := to.Close(); err == nil {
			err = closeErr
		}
	}()
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	return to.Sync()
}
