// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/samebit/samebit/checkpoint/internal/strict"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
)

const (
	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
)

// Reads says whether Open looks for a file of this name in a folder, so that making one changes what the folder is.
func Reads(name string) bool { return name == singleName || name == indexName || name == configName }

// Checkpoint is an open folder. Its methods are safe for concurrent use, except Close.
type Checkpoint struct {
	name   string // for errors
	config *Config
	fsys   fs.FS
	shards []*safetensors.File
	home   map[string]*safetensors.File // which shard a tensor is in
}

// Open opens the folder dir and maps its weights. Every header is read and compared with the index; no weight is touched yet.
// An error names the file, and the tensor if it is about one.
func Open(dir string) (*Checkpoint, error) {
	return open("checkpoint "+dir, os.DirFS(dir), func(name string) (*safetensors.File, error) {
		return safetensors.Open(filepath.Join(dir, name))
	})
}

// OpenFS is Open for a folder that is not on a disk, such as an embedded one: its weights are read into memory.
func OpenFS(fsys fs.FS) (*Checkpoint, error) {
	return open("checkpoint", fsys, func(name string) (*safetensors.File, error) {
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		return safetensors.Parse(name, data)
	})
}

// opener opens a shard of the folder.
type opener func(name string) (*safetensors.File, error)

func open(name string, fsys fs.FS, shard opener) (*Checkpoint, error) {
	c := &Checkpoint{name: name, fsys: fsys, home: map[string]*safetensors.File{}}
	if err := c.read(shard); err != nil {
		c.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

func (c *Checkpoint) read(shard opener) (err error) {
	if c.config, err = readConfig(c.fsys); err != nil {
		return err
	}
	single, index := exists(c.fsys, singleName), exists(c.fsys, indexName)
	switch {
	case single && index:
		return fmt.Errorf("found both %s and %s: need one", singleName, indexName)
	case single:
		return c.add(singleName, shard)
	case index:
		return c.addAll(shard)
	default:
		return fmt.Errorf("found neither %s nor %s: need one", singleName, indexName)
	}
}

func exists(fsys fs.FS, name string) bool {
	_, err := fs.Stat(fsys, name)
	return !errors.Is(err, fs.ErrNotExist)
}

// add opens a shard and takes in its tensors.
func (c *Checkpoint) add(name string, shard opener) error {
	f, err := shard(name)
	if err != nil {
		return err
	}
	c.shards = append(c.shards, f)
	for _, tensor := range f.Names() {
		if other := c.home[tensor]; other != nil {
			return fmt.Errorf("tensor %q: found in both %s and %s: need it once", tensor, other.Path(), f.Path())
		}
		c.home[tensor] = f
	}
	return nil
}

// addAll opens the shards that the index lists, and compares the index with what they hold.
func (c *Checkpoint) addAll(shard opener) error {
	index, err := readIndex(c.fsys)
	if err != nil {
		return fmt.Errorf("%s: %w", indexName, err)
	}
	tensors := sorted(index)
	listed := map[string]string{} // the first tensor in each shard
	for _, tensor := range slices.Backward(tensors) {
		listed[index[tensor]] = tensor
	}
	opened := map[string]*safetensors.File{}
	for _, name := range sorted(listed) {
		if err := c.add(name, shard); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s: tensor %q: found no shard %s: need it: %w", indexName, listed[name], name, fs.ErrNotExist)
			}
			return err
		}
		opened[name] = c.shards[len(c.shards)-1]
	}
	for _, tensor := range tensors {
		if shard, home := opened[index[tensor]], c.home[tensor]; home == nil {
			return fmt.Errorf("%s: tensor %q: found in no shard: need it in %s", indexName, tensor, shard.Path())
		} else if home != shard {
			return fmt.Errorf("%s: tensor %q: found in %s: need it in %s", indexName, tensor, home.Path(), shard.Path())
		}
	}
	for _, tensor := range sorted(c.home) {
		if _, ok := index[tensor]; !ok {
			return fmt.Errorf("%s: tensor %q: found in %s but not in the index: need it in both", indexName, tensor, c.home[tensor].Path())
		}
	}
	return nil
}

// readIndex gives the shard that each tensor is in.
func readIndex(fsys fs.FS) (map[string]string, error) {
	data, err := fs.ReadFile(fsys, indexName)
	if err != nil {
		return nil, err
	}
	var index map[string]string
	err = strict.Document(data, func(dec *json.Decoder, key string) error {
		if key != "weight_map" {
			_, err := strict.Value(dec)
			return err
		}
		index = map[string]string{}
		return strict.Object(dec, func(tensor string) error {
			shard, err := strict.String(dec)
			if err == nil && (!fs.ValidPath(shard) || path.Base(shard) != shard || shard == ".") {
				err = fmt.Errorf("found shard %q: need the name of a file in the folder", shard)
			}
			if err != nil {
				return fmt.Errorf("tensor %q: %w", tensor, err)
			}
			index[tensor] = shard
			return nil
		})
	})
	if err == nil && index == nil {
		err = errors.New("found no weight_map: need it")
	}
	return index, err
}

// Config is what config.json says.
func (c *Checkpoint) Config() Config { return *c.config }

// Check says whether the files still have the sizes that they had when they were mapped.
func (c *Checkpoint) Check() error {
	for _, shard := range c.shards {
		if err := shard.Check(); err != nil {
			return err
		}
	}
	return nil
}

// Evict lets the memory of weights go that a backend has copied. They stay readable: they come back from the file. It does
// nothing to memory that is not a map of this checkpoint.
func (c *Checkpoint) Evict(w []contract.BF16) {
	for _, shard := range c.shards {
		if shard.Evict(safetensors.Bytes(w)) {
			return
		}
	}
}

// Close releases the maps: all weights that came from them are dead.
func (c *Checkpoint) Close() error {
	var err error
	for _, shard := range c.shards {
		err = errors.Join(err, shard.Close())
	}
	return err
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
