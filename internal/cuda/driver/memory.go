// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package driver

import (
	"fmt"
	"runtime"
	"unsafe"
)

// Alloc gives n bytes of the GPU's memory, n at least 1.
func (d *Device) Alloc(n int) (Pointer, error) {
	p := new(Pointer)
	err := d.into(p, fmt.Sprintf("allocating %d bytes", n), cuMemAlloc, uintptr(n))
	return *p, err
}

// into makes a call whose first argument says where to put its result.
//
//go:uintptrescapes
func (d *Device) into(p *Pointer, doing string, c call, args ...uintptr) error {
	return d.do(doing, c, append([]uintptr{address(p)}, args...)...)
}

// Free gives memory back, after all work of the GPU.
func (d *Device) Free(p Pointer) error { return d.do("freeing memory", cuMemFree, uintptr(p)) }

// Available is the GPU's free and whole memory in bytes.
func (d *Device) Available() (free, total int, err error) {
	out := new([2]uintptr)
	err = d.do("asking for free memory", cuMemGetInfo, address(&out[0]), address(&out[1]))
	return int(out[0]), int(out[1]), err
}

// Pinned gives host memory that the GPU copies to and from by itself.
func (d *Device) Pinned(n int) ([]byte, error) {
	p := new(*byte)
	if err := d.do(fmt.Sprintf("allocating %d bytes of pinned host memory", n), cuMemHostAlloc, address(p), uintptr(n), 0); err != nil {
		return nil, err
	}
	return unsafe.Slice(*p, n), nil
}

// FreePinned gives it back.
func (d *Device) FreePinned(b []byte) error {
	return d.do("freeing pinned host memory", cuMemFreeHost, uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// ToDevice copies host memory to the GPU. It may return before pinned memory has been read; other memory has been read.
func (d *Device) ToDevice(dst Pointer, src []byte, s Stream) error {
	if len(src) == 0 {
		return nil
	}
	return d.do(fmt.Sprintf("copying %d bytes to the GPU", len(src)), cuMemcpyHtoDAsync, uintptr(dst),
		uintptr(unsafe.Pointer(unsafe.SliceData(src))), uintptr(len(src)), uintptr(s))
}

// ToHost copies the GPU's memory to the host, and waits for it and all work before it in the stream.
func (d *Device) ToHost(dst []byte, src Pointer, s Stream) error {
	if len(dst) == 0 {
		return d.Wait(s)
	}
	err := d.do(fmt.Sprintf("copying %d bytes from the GPU", len(dst)), cuMemcpyDtoHAsync,
		uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(src), uintptr(len(dst)), uintptr(s))
	if e := d.Wait(s); err == nil {
		err = e
	}
	return err
}

// Copy copies n bytes within the GPU's memory.
func (d *Device) Copy(dst, src Pointer, n int, s Stream) error {
	if n == 0 {
		return nil
	}
	return d.do(fmt.Sprintf("copying %d bytes on the GPU", n), cuMemcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
}

// Fill sets n bytes.
func (d *Device) Fill(dst Pointer, value byte, n int, s Stream) error {
	if n == 0 {
		return nil
	}
	return d.do(fmt.Sprintf("setting %d bytes", n), cuMemsetD8Async, uintptr(dst), uintptr(value), uintptr(n), uintptr(s))
}

// The numbers of a tensor map's kinds.
const (
	kindBF16        = 9
	swizzle128      = 3
	promote128bytes = 2
)

// NewTensorMap makes a tensor map.
func (d *Device) NewTensorMap(t Tensor) (TensorMap, error) {
	type aligned struct {
		room [2 * len(TensorMap{})]byte
	}
	room := new(aligned)
	at := (address(room) + 63) &^ 63
	sizes, strides := append([]uint64(nil), t.Sizes...), append([]uint64(nil), t.Strides...)
	box, steps := append([]uint32(nil), t.Box...), make([]uint32, len(t.Sizes))
	for i := range steps {
		steps[i] = 1
	}
	strides = append(strides, 0) // not empty, so that there is an address
	err := d.do(fmt.Sprintf("describing a tensor of %v elements, strides %v, box %v", t.Sizes, t.Strides, t.Box), cuTensorMapEncodeTiled,
		at, kindBF16, uintptr(len(sizes)), uintptr(t.At), address(&sizes[0]), address(&strides[0]), address(&box[0]), address(&steps[0]),
		0, swizzle128, promote128bytes, 0)
	runtime.KeepAlive(room)
	runtime.KeepAlive([]any{sizes, strides, box, steps})
	from := int(at - address(room))
	return TensorMap(room.room[from : from+len(TensorMap{})]), err
}
