// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWriteRefuses(t *testing.T) {
	one := []byte{1}
	for _, c := range []struct {
		name    string
		tensors []Out
		want    string
	}{
		{"duplicate", []Out{{"a", "U8", []int{1}, [][]byte{one}, nil}, {"a", "I8", []int{1}, [][]byte{one}, nil}}, `tensor "a": the name is taken: need each name once, and none to be __metadata__`},
		{"metadata's name", []Out{{"__metadata__", "U8", []int{1}, [][]byte{one}, nil}}, `tensor "__metadata__": the name is taken: need each name once, and none to be __metadata__`},
		{"name not UTF-8", []Out{{"\xff", "U8", []int{1}, [][]byte{one}, nil}}, `tensor "\xff": found a name that is not UTF-8`},
		{"unknown dtype", []Out{{"a", "u8", []int{1}, [][]byte{one}, nil}}, `tensor "a": found dtype "u8": need one that the format has`},
		{"negative shape", []Out{{"a", "U8", []int{-1}, nil, nil}}, `tensor "a": found U8 [-1]: need a size that is whole bytes and fits 63 bits`},
		{"overflow", []Out{{"a", "U8", []int{1 << 40, 1 << 40}, nil, nil}}, `tensor "a": found U8 [1099511627776 1099511627776]: need a size that is whole bytes and fits 63 bits`},
		{"short", []Out{{"a", "BF16", []int{1}, [][]byte{one}, nil}}, `tensor "a": found 1 bytes of data: need 2 for BF16 [1]`},
		{"long", []Out{{"a", "U8", []int{1}, [][]byte{one, one}, nil}}, `tensor "a": found 2 bytes of data: need 1 for U8 [1]`},
		{"short stream", []Out{{"a", "U8", []int{2}, nil, func(w io.Writer) error { _, err := w.Write(one); return err }}}, `tensor "a": found 1 bytes of data: need 2 for U8 [2]`},
		{"failing stream", []Out{{"a", "U8", []int{2}, nil, func(w io.Writer) error { return errors.New("no more") }}}, `tensor "a": no more`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "x.safetensors")
			if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
				t.Fatal(err)
			}
			if err := Write(path, c.tensors, nil); err == nil || err.Error() != path+": "+c.want {
				t.Errorf("got  %v\nwant %s: %s", err, path, c.want)
			}
			if got := string(read(t, path)); got != "old" {
				t.Errorf("the file is now %q, want old", got)
			}
			if left, _ := os.ReadDir(dir); len(left) != 1 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestWriteIntoNoFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "absent", "x")
	if err := Write(path, nil, nil); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want that %s's folder is not there", err, path)
	}
}

func TestWriteStream(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	out := Out{Name: "a", Dtype: "U8", Shape: []int{4}, Stream: func(w io.Writer) error {
		_, err := io.WriteString(w, "ab")
		return errors.Join(err, func() error { _, err := io.WriteString(w, "cd"); return err }())
	}}
	if err := Write(path, []Out{out}, nil); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if tensor, _ := f.Tensor("a"); string(tensor.Data) != "abcd" {
		t.Errorf("got %q, want abcd", tensor.Data)
	}
	if f.Metadata() != nil {
		t.Errorf("metadata: got %v, want none", f.Metadata())
	}
}
