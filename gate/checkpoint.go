// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/tidy"
)

// largestExport is how many bytes of shards a round trip will write.
const largestExport = 16 << 30

// roundTrip exports the checkpoint twice, as it is and with other weights, and reads both back.
func roundTrip(c *check) {
	c.needCheckpoint()
	if n := c.shardBytes(); n > largestExport {
		c.skip("the checkpoint has %d GB: need at most %d GB to write it anew", n>>30, largestExport>>30)
	}
	var dir string
	done, err := tidy.Make(func() (_ string, err error) {
		dir, err = os.MkdirTemp("", "samebit-gate-*")
		return dir, err
	})
	c.must(err)
	defer done()
	defer os.RemoveAll(dir)

	same := filepath.Join(dir, "same")
	c.must(c.source.Export(same, nil, nil))
	c.reopened("exported", same, c.Weights)
	c.sameFiles(same)

	// Other weights, each of which has another lowest bit.
	other := contract.Weights{Experts: make([]contract.Expert, c.Shape.Experts)}
	if c.Weights.Shared != nil {
		other.Shared = &contract.Expert{}
	}
	for _, e := range c.layer.Tensors {
		for _, p := range e.Parts {
			w := slices.Clone(*p.In(c.Weights))
			for i := range w {
				w[i] ^= 1
			}
			*p.In(&other) = w
		}
	}
	replaced := filepath.Join(dir, "replaced")
	c.must(c.source.Export(replaced, map[int]*contract.Weights{c.layer.Index: c.throughRanks(&other)}, nil))
	c.reopened("exported with other weights", replaced, &other)
}

func (c *check) needCheckpoint() {
	if c.source == nil {
		c.skip("synthetic weights: need a checkpoint")
	}
}

// reopened compares every tensor of the layer in a folder with the weights that it must have.
func (c *check) reopened(what, dir string, need *contract.Weights) {
	read, err := checkpoint.Open(dir)
	c.must(err)
	defer read.Close()
	l, err := read.Layer(c.layer.Index)
	c.must(err)
	for i, e := range l.Tensors {
		if e.Name != c.layer.Tensors[i].Name {
			c.claim(what, e.Name, c.layer.Tensors[i].Name)
			continue
		}
		c.same(what, []tensor{weightsOf(e, &l.Weights)}, []tensor{weightsOf(e, need)})
	}
}

// weightsOf is one of a checkpoint's tensors; its parts are the experts', where it is of many.
func weightsOf(e checkpoint.Entry, w *contract.Weights) tensor {
	t := tensor{name: e.Short, axes: []string{"part", "row", "column"}}
	if len(e.Parts) == 1 {
		t.axes = t.axes[1:]
	}
	columns := e.Shape[len(e.Shape)-1]
	for _, p := range e.Parts {
		t.parts = append(t.parts, matrix(e.Short, "", "", columns, *p.In(w)).parts...)
	}
	return t
}

// sameFiles compares the hashes of everything in the folder: of each tensor of a shard, of each other file as it is.
func (c *check) sameFiles(dir string) {
	need, have := sums(c, c.folder), sums(c, os.DirFS(dir))
	for _, name := range need.names {
		sum := have.of[name]
		if sum == "" {
			sum = "none"
		}
		c.claim(name, sum, need.of[name])
	}
	c.claim("tensors and files of the folder", fmt.Sprint(len(have.names)), fmt.Sprint(len(need.names)))
}

// hashes are SHA-256 sums by name.
type hashes struct {
	names []string
	of    map[string]string
}

func (h *hashes) add(name string, data []byte) {
	sum := sha256.Sum256(data)
	h.names, h.of[name] = append(h.names, name), hex.EncodeToString(sum[:])
}

func sums(c *check, folder fs.FS) hashes {
	h := hashes{of: map[string]string{}}
	entries, err := fs.ReadDir(folder, ".")
	c.must(err)
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		data, err := fs.ReadFile(folder, e.Name())
		c.must(err)
		if !strings.HasPrefix(e.Name(), "model") || filepath.Ext(e.Name()) != ".safetensors" {
			h.add(e.Name(), data)
			continue
		}
		eachTensor(c, e.Name(), data, func(t safetensors.Tensor) { h.add(e.Name()+" "+t.Name, t.Data) })
	}
	return h
}

func eachTensor(c *check, name string, data []byte, do func(safetensors.Tensor)) {
	f, err := safetensors.Parse(name, data)
	c.must(err)
	for _, n := range f.Names() {
		t, _ := f.Tensor(n)
		do(t)
	}
}

// shardBytes is how large the checkpoint's shards are.
func (c *check) shardBytes() (n int64) {
	names, err := fs.Glob(c.folder, "model*.safetensors")
	c.must(err)
	for _, name := range names {
		info, err := fs.Stat(c.folder, name)
		c.must(err)
		n += info.Size()
	}
	return n
}
