// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package driver

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/samebit/samebit/internal/dl"
)

// A call is a function of the driver library, by its place in symbols.
type call int

const (
	cuInit call = iota
	cuDriverGetVersion
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDeviceGetAttribute
	cuDevicePrimaryCtxRetain
	cuDevicePrimaryCtxRelease
	cuCtxSetCurrent
	cuModuleLoadData
	cuModuleUnload
	cuModuleGetFunction
	cuModuleGetGlobal
	cuFuncSetAttribute
	cuLaunchKernelEx
	cuMemAlloc
	cuMemFree
	cuMemGetInfo
	cuMemHostAlloc
	cuMemFreeHost
	cuMemcpyHtoDAsync
	cuMemcpyDtoHAsync
	cuMemcpyDtoDAsync
	cuMemsetD8Async
	cuStreamCreate
	cuStreamDestroy
	cuStreamSynchronize
	cuStreamBeginCapture
	cuStreamEndCapture
	cuStreamGetCaptureInfo
	cuGraphInstantiate
	cuGraphDestroy
	cuGraphLaunch
	cuGraphExecDestroy
	cuEventCreate
	cuEventDestroy
	cuEventRecord
	cuEventSynchronize
	cuEventElapsedTime
	cuTensorMapEncodeTiled
	cuGetErrorName
	calls
)

// symbols are the library's names, with the versions whose arguments are meant.
var symbols = [calls]string{
	"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute",
	"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuCtxSetCurrent",
	"cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction", "cuModuleGetGlobal_v2", "cuFuncSetAttribute", "cuLaunchKernelEx",
	"cuMemAlloc_v2", "cuMemFree_v2", "cuMemGetInfo_v2", "cuMemHostAlloc", "cuMemFreeHost",
	"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemsetD8Async",
	"cuStreamCreate", "cuStreamDestroy_v2", "cuStreamSynchronize", "cuStreamBeginCapture_v2", "cuStreamEndCapture",
	"cuStreamGetCaptureInfo_v2",
	"cuGraphInstantiateWithFlags", "cuGraphDestroy", "cuGraphLaunch", "cuGraphExecDestroy",
	"cuEventCreate", "cuEventDestroy_v2", "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime",
	"cuTensorMapEncodeTiled", "cuGetErrorName",
}

// A library makes calls; it gives CUDA's result. Arguments that are addresses stay alive through the call.
type library interface {
	call(c call, args ...uintptr) int
}

// shared is the library of the machine.
type shared [calls]uintptr

const libraryName = "libcuda.so.1"

// open loads the machine's library.
func open() (*shared, error) {
	handle, err := dl.Open(libraryName, false)
	if err != nil {
		return nil, err
	}
	var s shared
	for c, name := range symbols {
		if s[c], err = dl.Symbol(handle, name); err != nil {
			return nil, fmt.Errorf("%s has no %s: need a driver for CUDA 13.0 or later", libraryName, name)
		}
	}
	return &s, nil
}

//go:uintptrescapes
func (s *shared) call(c call, args ...uintptr) int {
	r, _, _ := purego.SyscallN(s[c], args...)
	return int(int32(r))
}

// errorName is CUDA's name of a result.
func errorName(l library, code int) string {
	text := new(*byte)
	if l.call(cuGetErrorName, uintptr(code), address(text)) != 0 || *text == nil {
		return "an error without a name"
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(*text), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(*text, n))
}

// escaped is what was last given to C. Its use is that whatever address is asked for must lie on the heap, where nothing moves;
// a conversion to uintptr alone would leave it on the stack.
var escaped unsafe.Pointer

// address is where v lies, for a call's arguments. The caller keeps v alive through the call.
func address[T any](v *T) uintptr {
	atomic.StorePointer(&escaped, unsafe.Pointer(v))
	return uintptr(unsafe.Pointer(v))
}
