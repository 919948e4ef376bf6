// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package driver

import (
	"errors"
	"strings"
	"testing"
	"unsafe"
)

func open9(t *testing.T, f *Fake) *Device {
	t.Helper()
	d, err := OpenFake(f)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDevice(t *testing.T) {
	d := open9(t, &Fake{})
	if d.Name != "Fake" || d.Major != 9 || d.Minor != 0 || d.Processors != 132 || d.Driver != 13000 {
		t.Errorf("got %+v", d)
	}
}

// An error says what was being done, and CUDA's name.
func TestErrors(t *testing.T) {
	f := &Fake{}
	d := open9(t, f)
	for call, do := range map[string]func() error{
		"cuMemAlloc":          func() error { _, err := d.Alloc(64); return err },
		"cuStreamSynchronize": func() error { return d.Wait(0) },
		"cuLaunchKernelEx":    func() error { return d.Launch(Launch{Name: "some_kernel"}, unsafe.Pointer(new(int)), 0) },
		"cuTensorMapEncodeTiled": func() error {
			_, err := d.NewTensorMap(Tensor{Sizes: []uint64{8, 8}, Strides: []uint64{16}, Box: []uint32{8, 8}})
			return err
		},
		"cuCtxSetCurrent": func() error { return d.Fill(1, 0, 1, 0) },
	} {
		f.Failing = call
		err := do()
		failed := (*Error)(nil)
		if !errors.As(err, &failed) || failed.Code != 999 || failed.Name != "CUDA_ERROR_FAKE" || !strings.HasPrefix(err.Error(), "cuda: "+failed.Doing) {
			t.Errorf("%s: got %v", call, err)
		}
	}
	if _, err := OpenFake(&Fake{Failing: "cuInit"}); !errors.Is(err, ErrNoDriver) {
		t.Errorf("a driver that does not start: got %v", err)
	}
}

// The structs that C reads are laid out as cuda.h says.
func TestLayout(t *testing.T) {
	var b launchBlock
	if unsafe.Offsetof(b.stream) != 32 || unsafe.Offsetof(b.attributes) != 40 || unsafe.Offsetof(b.count) != 48 {
		t.Error("CUlaunchConfig")
	}
	if unsafe.Sizeof(b.early) != 72 || unsafe.Offsetof(b.early.value) != 8 {
		t.Error("CUlaunchAttribute")
	}
}

func TestMemory(t *testing.T) {
	f := &Fake{}
	d := open9(t, f)
	p, err := d.Alloc(16)
	if err != nil {
		t.Fatal(err)
	}
	back := make([]byte, 16)
	err = errors.Join(d.Fill(p, 7, 16, 0), d.ToDevice(p, []byte("same"), 0), d.Copy(p+8, p, 4, 0), d.ToHost(back, p, 0))
	if want := "same\x07\x07\x07\x07same\x07\x07\x07\x07"; err != nil || string(back) != want {
		t.Errorf("got %q, %v", back, err)
	}
	if err := d.Free(p); err != nil || f.Left() != 0 {
		t.Errorf("free: %v, %d left", err, f.Left())
	}
	if err := d.Free(p); err == nil {
		t.Error("freed twice without an error")
	}
}
