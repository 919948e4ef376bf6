// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A file that becomes shorter while it is mapped makes the processor fault: an error, and the program goes on.
func TestTruncatedUnderMap(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not let a mapped file be shortened")
	}
	path := filepath.Join(t.TempDir(), "x.safetensors")
	values := make([]float32, 1<<20)
	if err := Write(path, []Out{New("a", []int{len(values)}, values)}, nil); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tensor, _ := f.Tensor("a")
	data, err := tensor.F32()
	if err != nil {
		t.Fatal(err)
	}
	sum := func() error {
		total := float32(0)
		for _, v := range data {
			total += v
		}
		if total != 0 {
			return errors.New("not zero")
		}
		return nil
	}
	if err := errors.Join(Guard(sum), f.Check()); err != nil {
		t.Fatal(err)
	}
	size := int64(len(f.data))
	if err := os.Truncate(path, size-1); err != nil {
		t.Fatal(err)
	}
	// The last page is still there, so nothing faults; only the size tells.
	if err := Guard(sum); err != nil {
		t.Error(err)
	}
	if err := f.Check(); err == nil || !strings.Contains(err.Error(), "it changed under the map") {
		t.Errorf("got %v, want that the file changed", err)
	}
	if err := os.Truncate(path, 1<<16); err != nil {
		t.Fatal(err)
	}
	if err := Guard(sum); err == nil || !strings.Contains(err.Error(), "a mapped file became shorter") {
		t.Errorf("got %v, want a fault", err)
	}
	// To read and to copy are different instructions.
	if err := Guard(func() error { copy(make([]float32, len(data)), data); return nil }); err == nil {
		t.Error("copy: got no error, want a fault")
	}
	if err := Write(filepath.Join(t.TempDir(), "y"), []Out{{Name: "a", Dtype: F32, Shape: tensor.Shape, Parts: [][]byte{tensor.Data}}}, nil); err == nil {
		t.Error("write: got no error, want a bad address")
	}
}

func TestGuardPassesOn(t *testing.T) {
	want := errors.New("mine")
	if err := Guard(func() error { return want }); err != want {
		t.Errorf("got %v, want %v", err, want)
	}
	defer func() {
		if r := recover(); r != "mine" {
			t.Errorf("got panic %v, want mine", r)
		}
	}()
	Guard(func() error { panic("mine") })
}
