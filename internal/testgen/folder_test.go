// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package testgen

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/contract"
)

func TestShapes(t *testing.T) {
	for _, s := range Shapes {
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		if got, err := Shape(s.Name); err != nil || got != s.Shape {
			t.Errorf("%s: got %+v, %v", s.Name, got, err)
		}
	}
	if _, err := Shape("huge"); err == nil || err.Error() != `shape "huge": need one of [qwen3-next qwen3-30b-a3b mid tiny]` {
		t.Errorf("got %v", err)
	}
}

// A folder's layers are the weights in memory, and layers differ.
func TestWriteCheckpoint(t *testing.T) {
	for _, name := range []string{"tiny", "mid"} {
		dir := filepath.Join(t.TempDir(), "dst")
		var done, total int64
		if err := WriteCheckpoint(dir, name, 2, 7, func(d, n int64) { done, total = d, n }); err != nil {
			t.Fatal(err)
		}
		if done == 0 || done != total {
			t.Errorf("progress: %d of %d", done, total)
		}
		s, _ := Shape(name)
		first, second := load(t, dir, 0, s), load(t, dir, 1, s)
		if want := Weights(s, 7); !reflect.DeepEqual(first, want) {
			t.Errorf("%s: layer 0 is not Weights", name)
		}
		if reflect.DeepEqual(first, second) || reflect.DeepEqual(first, Weights(s, 8)) {
			t.Errorf("%s: layers or seeds are the same", name)
		}
	}
}

// load gives a copy of a layer's weights.
func load(t *testing.T, dir string, layer int, want contract.Shape) contract.Weights {
	t.Helper()
	c, err := checkpoint.OpenFS(os.DirFS(dir)) // in memory, so that nothing has to stay open
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Layer(layer)
	if err != nil {
		t.Fatal(err)
	}
	if l.Shape != want {
		t.Errorf("shape: got %+v, want %+v", l.Shape, want)
	}
	return l.Weights
}

// A shape without a shared expert is a qwen3_moe one.
func TestConfigWithoutShared(t *testing.T) {
	s := contract.Shape{Hidden: 8, Experts: 2, TopK: 1, Width: 4}
	dir := filepath.Join(t.TempDir(), "dst")
	w := writer{shape: s, layers: 1, limit: shardSize}
	if err := checkpoint.CreateFolder(dir, w.write); err != nil {
		t.Fatal(err)
	}
	if got := load(t, dir, 0, s); !reflect.DeepEqual(got, Weights(s, 0)) {
		t.Error("not Weights")
	}
}

// Shards stay within their limit, and all of them are in the index.
func TestShards(t *testing.T) {
	s, _ := Shape("tiny")
	dir := filepath.Join(t.TempDir(), "dst")
	w := writer{shape: s, layers: 1, seed: 1, limit: 200_000}
	if err := checkpoint.CreateFolder(dir, w.write); err != nil {
		t.Fatal(err)
	}
	if len(w.shards) < 3 {
		t.Errorf("got %d shards, want at least 3", len(w.shards))
	}
	for i := range w.shards {
		info, err := os.Stat(filepath.Join(dir, fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(w.shards))))
		if err != nil || info.Size() > w.limit+10_000 { // and the header
			t.Errorf("shard %d: %v, %v", i, info, err)
		}
	}
	if got := load(t, dir, 0, s); !reflect.DeepEqual(got, Weights(s, 1)) {
		t.Error("not Weights")
	}
}

func TestWriteCheckpointRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		shape  string
		layers int
		want   string
	}{
		{"huge", 1, `shape "huge": need one of`},
		{"tiny", 0, "found 0 layers: need at least 1"},
		{"tiny", 1, dir + ": found something there: need a name that is free"},
	} {
		if err := WriteCheckpoint(dir, c.shape, c.layers, 1, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}
