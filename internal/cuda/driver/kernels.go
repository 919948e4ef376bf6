// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package driver

import (
	"fmt"
	"runtime"
	"unsafe"
)

// Load loads an image.
func (d *Device) Load(image []byte) (Module, error) {
	m := new(Pointer)
	err := d.into(m, "loading the kernels", cuModuleLoadData, uintptr(unsafe.Pointer(unsafe.SliceData(image))))
	return Module(*m), err
}

// Unload gives the module back.
func (d *Device) Unload(m Module) error {
	return d.do("unloading the kernels", cuModuleUnload, uintptr(m))
}

// Function finds a kernel, which may use up to shared bytes of dynamic shared memory.
func (d *Device) Function(m Module, name string, shared int) (Function, error) {
	f, c := new(Pointer), append([]byte(name), 0)
	if err := d.into(f, "finding kernel "+name, cuModuleGetFunction, uintptr(m), address(&c[0])); err != nil {
		return 0, err
	}
	runtime.KeepAlive(c)
	const maxDynamicShared = 8
	err := d.do(fmt.Sprintf("allowing kernel %s %d bytes of shared memory", name, shared), cuFuncSetAttribute, uintptr(*f),
		maxDynamicShared, uintptr(shared))
	return Function(*f), err
}

// Global finds a variable: where it is and its bytes.
func (d *Device) Global(m Module, name string) (Pointer, int, error) {
	p, size, c := new(Pointer), new(uintptr), append([]byte(name), 0)
	err := d.into(p, "finding "+name, cuModuleGetGlobal, address(size), uintptr(m), address(&c[0]))
	runtime.KeepAlive(c)
	return *p, int(*size), err
}

// launchBlock is what a launch points at: CUlaunchConfig, its attribute, and the list of the kernel's one parameter.
type launchBlock struct {
	grid, block [3]uint32
	shared      uint32
	stream      Stream
	attributes  *attribute
	count       uint32
	early       attribute
	parameters  [1]unsafe.Pointer
}

type attribute struct {
	id    uint32
	_     uint32
	value [64]byte
}

const programmaticSerialization = 6 // a launch attribute's number

// Launch starts a kernel whose one parameter is the struct that p points at.
func (d *Device) Launch(l Launch, p unsafe.Pointer, s Stream) error {
	b := &launchBlock{block: [3]uint32{uint32(l.Block), 1, 1}, shared: uint32(l.Shared), stream: s}
	for i, n := range l.Grid {
		b.grid[i] = uint32(max(1, n))
	}
	if l.Early {
		b.early.id, b.early.value[0] = programmaticSerialization, 1 // little-endian, as every machine with this driver
		b.attributes, b.count = &b.early, 1
	}
	b.parameters[0] = p
	err := d.do(fmt.Sprint("launching kernel ", l.Name), cuLaunchKernelEx, address(b), uintptr(l.Kernel), address(&b.parameters), 0)
	runtime.KeepAlive(b)
	return err
}
