// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/checkpoint/testdata"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
)

// What is exported is what was read, file by file and byte by byte: Python's safetensors wrote the shards, and here they are again.
func TestExportReal(t *testing.T) {
	for _, folder := range testdata.All() {
		t.Run(folder.Name, func(t *testing.T) {
			src, dst := filepath.Join("testdata", folder.Name), filepath.Join(t.TempDir(), "dst")
			if err := open(t, src).Export(dst, nil, nil); err != nil {
				t.Fatal(err)
			}
			same(t, dst, src, nil)
		})
	}
}

func TestExportLayouts(t *testing.T) {
	for _, layout := range []checkpoint.Layout{split, fused} {
		for _, single := range []bool{false, true} {
			t.Run(fmt.Sprint(layout, single), func(t *testing.T) {
				f := newFixture(layout)
				if single {
					f.single()
				}
				f.spoil = func(t *testing.T, dir string) {
					writeFile(t, filepath.Join(dir, "tokenizer.json"), "{}")
					if err := os.Mkdir(filepath.Join(dir, "original"), 0o777); err != nil {
						t.Fatal(err)
					}
				}
				src, dst := f.write(t), filepath.Join(t.TempDir(), "dst")
				c := open(t, src)
				if err := c.Export(dst, nil, nil); err != nil {
					t.Fatal(err)
				}
				same(t, dst, src, map[string]bool{"original": true})
			})
		}
	}
}

// same compares two folders, but for the names in skip, which dst must not have.
func same(t *testing.T, dst, src string, skip map[string]bool) {
	t.Helper()
	entries, err := os.ReadDir(src)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if skip[e.Name()] {
			continue
		}
		want, err := os.ReadFile(filepath.Join(src, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dst, e.Name())); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v, or other bytes", e.Name(), err)
		}
	}
	if left, _ := os.ReadDir(dst); len(left) != len(entries)-len(skip) {
		t.Errorf("got %v, want what %v are", left, entries)
	}
}

// A layer that is replaced is the new one, all else is the old.
func TestExportReplaces(t *testing.T) {
	for _, layout := range []checkpoint.Layout{split, fused} {
		t.Run(fmt.Sprint(layout), func(t *testing.T) {
			c := open(t, newFixture(layout).write(t))
			w := testgen.Weights(small, 5)
			dst := filepath.Join(t.TempDir(), "dst")
			var done, total, calls int64
			err := c.Export(dst, map[int]*contract.Weights{1: &w}, func(d, n int64) {
				if d < done || d > n {
					t.Errorf("progress: %d after %d of %d", d, done, n)
				}
				done, total, calls = d, n, calls+1
			})
			if err != nil {
				t.Fatal(err)
			}
			if calls < 2 || done != total {
				t.Errorf("progress: %d of %d after %d calls", done, total, calls)
			}
			exported := open(t, dst)
			if got := layer(t, exported, 1); !reflect.DeepEqual(got.Weights, w) || got.Layout != layout {
				t.Error("layer 1 is not the replacement")
			}
			if got, want := layer(t, exported, 0), layer(t, c, 0); !reflect.DeepEqual(got, want) {
				t.Error("layer 0 is another")
			}
		})
	}
}

func TestExportRefuses(t *testing.T) {
	c := open(t, newFixture(split).write(t))
	short, infinite := testgen.Weights(small, 1), testgen.Weights(small, 1)
	short.Experts[2].Up = short.Experts[2].Up[1:]
	infinite.Experts[3].Down[4] = 0x7F80
	for _, test := range []struct {
		name    string
		replace map[int]*contract.Weights
		want    string
	}{
		{"layer out of range", map[int]*contract.Weights{2: &short}, "layer 2: found num_hidden_layers 2: need a layer from 0 to 1"},
		{"wrong size", map[int]*contract.Weights{1: &short}, "layer 1: replacement: weights: expert 2 up has 23 elements: need 24"},
		{"not finite", map[int]*contract.Weights{0: &infinite}, `layer 0: replacement: tensor "model.layers.0.mlp.experts.3.down_proj.weight": found +Inf at element 4 of its down part: need finite weights`},
	} {
		t.Run(test.name, func(t *testing.T) {
			dst := filepath.Join(t.TempDir(), "dst")
			if err := c.Export(dst, test.replace, nil); err == nil || err.Error() != "export "+dst+": "+test.want {
				t.Errorf("got  %v\nwant export %s: %s", err, dst, test.want)
			}
			if left, _ := os.ReadDir(filepath.Dir(dst)); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	dst := t.TempDir()
	if err := c.Export(dst, nil, nil); err == nil || !strings.HasSuffix(err.Error(), dst+": found something there: need a name that is free") {
		t.Errorf("got %v", err)
	}
	if err := c.Export(filepath.Join(dst, "absent", "dst"), nil, nil); err == nil {
		t.Error("exported into a folder that is not there")
	}
}

// A folder whose making fails, or panics, leaves nothing.
func TestCreateFolderFails(t *testing.T) {
	parent := t.TempDir()
	create := func(fail func() error) (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = r.(error)
			}
		}()
		return checkpoint.CreateFolder(filepath.Join(parent, "dst"), func(dir string) error {
			writeFile(t, filepath.Join(dir, "a"), "a")
			return fail()
		})
	}
	for _, fail := range []func() error{func() error { return os.ErrInvalid }, func() error { panic(os.ErrInvalid) }} {
		err := create(fail)
		if left, _ := os.ReadDir(parent); err != os.ErrInvalid || len(left) != 0 {
			t.Errorf("got %v, and %v left behind", err, left)
		}
	}
}
