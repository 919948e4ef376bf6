// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/samebit/samebit/contract"
)

// golden was written by Python's safetensors 0.8.0: numpy's arange of each type, in the shape [2,3].
const golden = "testdata/golden.safetensors"

// goldenTensors are what golden holds.
func goldenTensors() []Out {
	return []Out{
		New("bf16", []int{2, 3}, []contract.BF16{0, 0x3F80, 0x4000}, []contract.BF16{0x4040, 0x4080, 0x40A0}),
		New("f32", []int{2, 3}, []float32{0, 1, 2, 3, 4, 5}),
		New("f64", []int{2, 3}, []float64{0, 1, 2, 3, 4, 5}),
		New("i32.<&>", []int{2, 3}, []int32{0, 1, 2, 3, 4, 5}),
		New("scalar", nil, []float32{7}),
		New("empty", []int{0, 3}, []int32{}),
		{Name: "u8", Dtype: "U8", Shape: []int{3}, Parts: [][]byte{{1}, {}, {2, 3}}},
		{Name: "bool", Dtype: "BOOL", Shape: []int{1}, Parts: [][]byte{{1}}},
		{Name: "f16", Dtype: "F16", Shape: []int{1}, Parts: [][]byte{{0, 0x3C}}},
		{Name: "i64", Dtype: "I64", Shape: []int{1}, Parts: [][]byte{{9, 0, 0, 0, 0, 0, 0, 0}}},
		{Name: "u64", Dtype: "U64", Shape: []int{1}, Parts: [][]byte{{9, 0, 0, 0, 0, 0, 0, 0}}},
		{Name: "c64", Dtype: "C64", Shape: []int{1}, Parts: [][]byte{{0, 0, 0x80, 0x3F, 0, 0, 0, 0}}},
	}
}

func TestGolden(t *testing.T) {
	f, err := Open(golden)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, want := f.Metadata(), map[string]string{"format": "np"}; !reflect.DeepEqual(got, want) {
		t.Errorf("metadata: got %v, want %v", got, want)
	}
	if f.Path() != golden {
		t.Errorf("path: got %s", f.Path())
	}
	tensors := goldenTensors()
	if len(f.Names()) != len(tensors) {
		t.Errorf("names: got %v, want %d", f.Names(), len(tensors))
	}
	for _, want := range tensors {
		got, ok := f.Tensor(want.Name)
		if !ok {
			t.Errorf("tensor %q: found none", want.Name)
			continue
		}
		if got.Dtype != want.Dtype || len(got.Shape) != len(want.Shape) || !bytes.Equal(got.Data, bytes.Join(want.Parts, nil)) {
			t.Errorf("tensor %q: got %+v, want %+v", want.Name, got, want)
		}
	}
	if _, ok := f.Tensor("bf1"); ok {
		t.Error(`tensor "bf1": found one`)
	}
}

// What Python wrote, Write writes to the byte: order, header and padding are the same.
func TestWriteAsPython(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := Write(path, goldenTensors(), map[string]string{"format": "np"}); err != nil {
		t.Fatal(err)
	}
	got, want := read(t, path), read(t, golden)
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Typed views give the same values whether the data is aligned or not.
func TestViews(t *testing.T) {
	for shift := range 8 {
		name := strings.Repeat("n", shift+1) // moves the data section, since the header here is not padded
		parse := func(dtype Dtype, data []byte, shape string) Tensor {
			file := raw("{"+info(name, string(dtype), shape, 0, len(data))+"}", 0)
			f, err := Parse("x", append(file, data...))
			if err != nil {
				t.Fatal(err)
			}
			tensor, _ := f.Tensor(name)
			return tensor
		}
		check(t, parse(BF16, Bytes([]contract.BF16{1, 2, 3}), "[3]").BF16, []contract.BF16{1, 2, 3})
		check(t, parse(F32, Bytes([]float32{1, 2, 3}), "[3,1]").F32, []float32{1, 2, 3})
		check(t, parse(F64, Bytes([]float64{1, 2}), "[2]").F64, []float64{1, 2})
		check(t, parse(I32, Bytes([]int32{-1, 2}), "[2]").I32, []int32{-1, 2})
		check(t, parse(I32, nil, "[0]").I32, []int32{})
	}
}

func check[T Element](t *testing.T, view func() ([]T, error), want []T) {
	t.Helper()
	got, err := view()
	if err != nil || !bytes.Equal(Bytes(got), Bytes(want)) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestViewRefuses(t *testing.T) {
	tensor := Tensor{Name: "a", Dtype: "F16", Shape: []int{1}, Data: make([]byte, 2)}
	for _, c := range []struct {
		view func() error
		want string
	}{
		{func() error { _, err := tensor.BF16(); return err }, `tensor "a": found dtype F16: need BF16`},
		{func() error { _, err := tensor.F32(); return err }, `tensor "a": found dtype F16: need F32`},
		{func() error { _, err := tensor.F64(); return err }, `tensor "a": found dtype F16: need F64`},
		{func() error { _, err := tensor.I32(); return err }, `tensor "a": found dtype F16: need I32`},
	} {
		if err := c.view(); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	short := filepath.Join(dir, "short.safetensors")
	if err := os.WriteFile(short, []byte("abc"), 0o666); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "bad.safetensors")
	if err := os.WriteFile(bad, raw("{"+info("a", "U8", "[3]", 0, 3)+"}", 2), 0o666); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "absent"): "absent",
		dir:                          "need a regular file",
		short:                        short + ": found 3 bytes: need at least 8",
		bad:                          bad + `: tensor "a": found data up to byte 3: need at most 2`,
	} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
}

func TestCloseTwice(t *testing.T) {
	f, err := Open(golden)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
