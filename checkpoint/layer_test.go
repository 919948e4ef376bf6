// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package checkpoint_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/checkpoint/testdata"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
)

// The checkpoints that transformers wrote, as they are and with all experts in one tensor: the same weights.
func TestReal(t *testing.T) {
	wide := contract.Shape{Hidden: 128, Experts: 16, TopK: 4, Width: 64}
	shapes := map[string]contract.Shape{
		"qwen3-next-tiny": wide, "qwen3-moe-tiny": wide, "qwen2-moe-tiny": wide, "olmoe-tiny": wide,
		"mixtral-tiny": {Hidden: 128, Experts: 8, TopK: 2, Width: 64, NormTopK: true},
	}
	for _, folder := range testdata.All() {
		t.Run(folder.Name, func(t *testing.T) {
			want := shapes[folder.Name]
			want.NormTopK = strings.HasPrefix(folder.Name, "qwen3") || want.NormTopK
			if strings.HasPrefix(folder.Name, "qwen3-next") || strings.HasPrefix(folder.Name, "qwen2") {
				want.SharedWidth = 64
			}
			embedded, err := checkpoint.OpenFS(folder.FS)
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "fused")
			if err := testgen.Fuse(folder.FS, dir, 1); err != nil {
				t.Fatal(err)
			}
			if got := strings.ReplaceAll(embedded.Config().ModelType, "_", "-") + "-tiny"; got != folder.Name {
				t.Errorf("model_type: got that of %s", got)
			}
			first := layer(t, embedded, 1)
			if first.Shape != want {
				t.Errorf("shape: got %+v, want %+v", first.Shape, want)
			}
			for _, c := range []*checkpoint.Checkpoint{open(t, filepath.Join("testdata", folder.Name)), open(t, dir)} {
				l := layer(t, c, 1)
				if l.Shape != want || !reflect.DeepEqual(l.Weights, first.Weights) {
					t.Errorf("%v: other weights than the embedded folder's", l.Layout)
				}
			}
			// The copies have layer 1 alone.
			if _, err := embedded.Layer(0); err == nil || !strings.Contains(err.Error(), "layer 0: found no tensor under any of") {
				t.Errorf("layer 0: got %v", err)
			}
		})
	}
}

// Every matrix of a layer is the one of its name, in either layout and from one file or two.
func TestRoles(t *testing.T) {
	for _, layout := range []checkpoint.Layout{split, fused} {
		for _, single := range []bool{false, true} {
			t.Run(fmt.Sprint(layout, single), func(t *testing.T) {
				f := newFixture(layout)
				var want []contract.BF16
				for _, e := range layout.Entries(1, small) {
					want = append(want, f.values(e.Name)...)
				}
				if single {
					f.single()
				}
				l := layer(t, open(t, f.write(t)), 1)
				var got []contract.BF16
				for _, e := range l.Tensors {
					for _, p := range e.Parts {
						got = append(got, *p.In(&l.Weights)...)
					}
				}
				if !reflect.DeepEqual(got, want) {
					t.Error("the parts of the layer are not the bytes of its tensors")
				}
			})
		}
	}
}

// The names and parts of entries, written out.
func TestEntries(t *testing.T) {
	shape := contract.Shape{Hidden: 8, Experts: 2, TopK: 1, Width: 3, SharedWidth: 5}
	for _, c := range []struct {
		layout checkpoint.Layout
		want   string
	}{
		{split, `mlp.gate.weight [2 8] router
mlp.experts.0.gate_proj.weight [3 8] gate 0
mlp.experts.0.up_proj.weight [3 8] up 0
mlp.experts.0.down_proj.weight [8 3] down 0
mlp.experts.1.gate_proj.weight [3 8] gate 1
mlp.experts.1.up_proj.weight [3 8] up 1
mlp.experts.1.down_proj.weight [8 3] down 1
mlp.shared_expert.gate_proj.weight [5 8] gate shared
mlp.shared_expert.up_proj.weight [5 8] up shared
mlp.shared_expert.down_proj.weight [8 5] down shared
mlp.shared_expert_gate.weight [1 8] shared-gate
`},
		{fused, `mlp.gate.weight [2 8] router
mlp.experts.gate_up_proj [2 6 8] gate 0 up 0 gate 1 up 1
mlp.experts.down_proj [2 8 3] down 0 down 1
mlp.shared_expert.gate_proj.weight [5 8] gate shared
mlp.shared_expert.up_proj.weight [5 8] up shared
mlp.shared_expert.down_proj.weight [8 5] down shared
mlp.shared_expert_gate.weight [1 8] shared-gate
`},
		{checkpoint.Layout{Prefix: checkpoint.LanguagePrefix, Block: checkpoint.SparseMoE}, `block_sparse_moe.gate.weight [2 8] router
block_sparse_moe.experts.0.w1.weight [3 8] gate 0
block_sparse_moe.experts.0.w3.weight [3 8] up 0
block_sparse_moe.experts.0.w2.weight [8 3] down 0
block_sparse_moe.experts.1.w1.weight [3 8] gate 1
block_sparse_moe.experts.1.w3.weight [3 8] up 1
block_sparse_moe.experts.1.w2.weight [8 3] down 1
`},
	} {
		s := shape
		if c.layout.Block == checkpoint.SparseMoE {
			s.SharedWidth = 0
		}
		var got strings.Builder
		for _, e := range c.layout.Entries(7, s) {
			if want := c.layout.Prefix + "7." + e.Short; e.Name != want {
				t.Errorf("name: got %s, want %s", e.Name, want)
			}
			fmt.Fprintf(&got, "%s %v", e.Short, e.Shape)
			for _, p := range e.Parts {
				switch {
				case p.Role == checkpoint.Router || p.Role == checkpoint.SharedGate:
					fmt.Fprintf(&got, " %v", p.Role)
				case p.Shared:
					fmt.Fprintf(&got, " %v shared", p.Role)
				default:
					fmt.Fprintf(&got, " %v %d", p.Role, p.Expert)
				}
			}
			got.WriteByte('\n')
		}
		if got.String() != c.want {
			t.Errorf("%v: got\n%swant\n%s", c.layout, &got, c.want)
		}
	}
}

// Layers lie in the maps and are not copied: two loads are the same memory.
func TestZeroCopy(t *testing.T) {
	c := open(t, filepath.Join("testdata", "qwen3-next-tiny"))
	a, b := layer(t, c, 1), layer(t, c, 1)
	for _, e := range a.Tensors {
		if &(*e.Parts[0].In(&a.Weights))[0] != &(*e.Parts[0].In(&b.Weights))[0] {
			t.Errorf("%s: copied", e.Name)
		}
	}
}

// A header of odd length puts every element at an odd place: the weights are copied, and the same.
func TestUnaligned(t *testing.T) {
	f := newFixture(split)
	f.single()
	want := layer(t, open(t, f.write(t)), 1)
	f.spoil = func(t *testing.T, dir string) {
		path := filepath.Join(dir, "model.safetensors")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		end := 8 + binary.LittleEndian.Uint64(data)
		data = slices.Insert(data, int(end), ' ')
		binary.LittleEndian.PutUint64(data, end-8+1)
		writeFile(t, path, string(data))
	}
	if got := layer(t, open(t, f.write(t)), 1); !reflect.DeepEqual(got, want) {
		t.Error("other weights than at even places")
	}
}

// A shard that becomes shorter once it is open: an error that names the file.
func TestTruncatedUnderMap(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not let a mapped file be shortened")
	}
	const name = "model-00002-of-00003.safetensors"
	for _, c := range []struct {
		size int64
		want string
	}{{263983, "it changed under the map"}, {8192, "a mapped file became shorter"}} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, testdata.Qwen3Next()); err != nil {
			t.Fatal(err)
		}
		opened := open(t, dir)
		shard := filepath.Join(dir, name)
		if err := errors.Join(os.Chmod(shard, 0o666), os.Truncate(shard, c.size)); err != nil {
			t.Fatal(err)
		}
		if _, err := opened.Layer(1); err == nil || !strings.Contains(err.Error(), shard) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d bytes: got %v, want %s: %s", c.size, err, shard, c.want)
		}
		dst := filepath.Join(t.TempDir(), "dst")
		if err := opened.Export(dst, nil, nil); err == nil {
			t.Errorf("%d bytes: exported", c.size)
		}
		if left, _ := os.ReadDir(filepath.Dir(dst)); len(left) != 0 {
			t.Errorf("%d bytes: left behind: %v", c.size, left)
		}
	}
}

func TestOpenFSRefuses(t *testing.T) {
	if _, err := checkpoint.OpenFS(os.DirFS(t.TempDir())); err == nil || err.Error() != "checkpoint: found no config.json: need it: file does not exist" {
		t.Errorf("got %v", err)
	}
}

// A part is read, and no value outside of it: one that is not finite there is nobody's business.
func TestLayerPart(t *testing.T) {
	const e, row = 2, 1 // where the bad value is, in up
	for _, l := range []checkpoint.Layout{split, fused} {
		f := newFixture(l)
		for _, entry := range l.Entries(1, small) {
			at := 0
			for _, p := range entry.Parts {
				if p == (checkpoint.Part{Role: checkpoint.Up, Expert: e}) {
					f.values(entry.Name)[at+row*small.Hidden+3] = 0x7FC0
				}
				at += p.Len(small)
			}
		}
		c := open(t, f.write(t))
		whole := small.Whole()
		for _, test := range []struct {
			experts, width contract.Range
			refused        bool
		}{
			{whole.Experts, whole.Width, true},
			{contract.Range{From: e, To: e + 1}, contract.Range{From: 0, To: row + 1}, true},
			{contract.Range{From: e, To: e + 1}, contract.Range{From: row, To: row + 1}, true},
			{contract.Range{From: e, To: e + 1}, contract.Range{From: row + 1, To: small.Width}, false},
			{contract.Range{From: 0, To: e}, whole.Width, false},
			{contract.Range{From: e + 1, To: small.Experts}, whole.Width, false},
		} {
			part := contract.Part{Shape: small, Experts: test.experts, Width: test.width, Shared: whole.Shared}
			_, err := c.LayerPart(1, func(contract.Shape) contract.Part { return part })
			if (err != nil) != test.refused || err != nil && !strings.Contains(err.Error(), "found NaN (0x7FC0)") {
				t.Errorf("fused %t, experts %v, width %v: error %v, want one: %t", l.Fused, test.experts, test.width, err, test.refused)
			}
		}
	}
}
