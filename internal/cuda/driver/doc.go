// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package driver calls CUDA's driver library: no cgo, no toolkit, only the calls that are made here. Every error says what
// was being done and carries CUDA's own name.
package driver

import "fmt"

// Error is a driver call that failed.
type Error struct {
	Doing string // what was being done
	Code  int    // CUDA's number
	Name  string // and name, such as CUDA_ERROR_OUT_OF_MEMORY
}

func (e *Error) Error() string { return fmt.Sprintf("cuda: %s: %s (%d)", e.Doing, e.Name, e.Code) }

// Pointer is an address in the GPU's memory.
type Pointer uintptr

// The driver's own objects.
type (
	Stream   uintptr
	Event    uintptr
	Module   uintptr
	Function uintptr
	Exec     uintptr // a graph that can be launched
)

// Launch is how a kernel is started.
type Launch struct {
	Kernel Function
	Name   string
	Grid   [3]int
	Block  int
	Shared int  // bytes of dynamic shared memory
	Early  bool // the kernel waits by itself for the one before it (programmatic dependent launch)
}

// TensorMap is a CUtensorMap; it must stand at a multiple of 64 bytes where it is made.
type TensorMap [128]byte

// Tensor is a BF16 tensor for the copy engine. Sizes count elements, strides bytes, the innermost first; boxes of 64 elements by
// others are swizzled over 128 bytes, and read as zeros outside.
type Tensor struct {
	At      Pointer
	Sizes   []uint64
	Strides []uint64 // of all dimensions but the innermost
	Box     []uint32
}
