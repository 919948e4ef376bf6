// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package driver

import (
	"slices"
	"strings"
	"sync"
	"unsafe"
)

// Fake is a GPU for tests: its memory is the host's, launches are noted and do nothing, and any call can be made to fail.
type Fake struct {
	Major, Minor int
	Failing      string   // the call of this name fails, with result 999
	Launches     []string // kernels, in order; early ones with a + behind
	Stream       Stream   // of the last launch
	Launched     func(kernel string, parameters unsafe.Pointer)
	Maps         [][]uint64
	names        map[uintptr]string
	memory       map[uintptr][]byte
	captures     uint64 // begun
	capturing    bool
	mu           sync.Mutex
}

// OpenFake gives a device on a fake of compute capability 9.0, unless the fake says otherwise.
func OpenFake(f *Fake) (*Device, error) {
	if f.Major == 0 {
		f.Major = 9
	}
	f.memory, f.names = map[uintptr][]byte{}, map[uintptr]string{}
	return openOn(f, 0)
}

// Left is how many allocations have not been freed.
func (f *Fake) Left() int { return len(f.memory) }

func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

func bytesAt(p, n uintptr) []byte { return unsafe.Slice(at[byte](p), int(n)) }

func textAt(p uintptr) string {
	n := uintptr(0)
	for *at[byte](p + n) != 0 {
		n++
	}
	return string(bytesAt(p, n))
}

//go:uintptrescapes
func (f *Fake) call(c call, a ...uintptr) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Failing != "" && strings.HasPrefix(symbols[c], f.Failing) {
		return 999
	}
	switch c {
	case cuStreamBeginCapture:
		f.captures, f.capturing = f.captures+1, true
	case cuStreamGetCaptureInfo:
		if f.capturing {
			*at[uint32](a[1]), *at[uint64](a[2]) = 1, f.captures
		}
	case cuDeviceGetCount:
		*at[int32](a[0]) = 1
	case cuDeviceGet:
		*at[int32](a[0]) = 0
	case cuDriverGetVersion:
		*at[int32](a[0]) = 13000
	case cuDeviceGetName:
		copy(bytesAt(a[0], a[1]), "Fake\x00")
	case cuDeviceGetAttribute:
		*at[int32](a[0]) = int32(map[uintptr]int{attributeMajor: f.Major, attributeMinor: f.Minor, attributeProcessors: 132}[a[1]])
	case cuDevicePrimaryCtxRetain, cuStreamCreate, cuEventCreate, cuModuleLoadData, cuStreamEndCapture, cuGraphInstantiate:
		*at[uintptr](a[min(len(a)-1, map[call]int{cuStreamEndCapture: 1}[c])]) = 7
		if c == cuStreamEndCapture {
			f.capturing = false
		}
	case cuModuleGetFunction:
		name := textAt(a[2])
		*at[uintptr](a[0]) = uintptr(1000 + len(f.names))
		f.names[uintptr(1000+len(f.names))] = name
	case cuMemAlloc, cuMemHostAlloc:
		b := make([]byte, a[1]+256)
		p := (uintptr(unsafe.Pointer(&b[0])) + 255) &^ 255
		f.memory[p] = b
		*at[uintptr](a[0]) = p
	case cuMemFree, cuMemFreeHost:
		if f.memory[a[0]] == nil {
			return 1
		}
		delete(f.memory, a[0])
	case cuMemcpyHtoDAsync, cuMemcpyDtoHAsync, cuMemcpyDtoDAsync:
		copy(bytesAt(a[0], a[2]), bytesAt(a[1], a[2]))
	case cuMemsetD8Async:
		b := bytesAt(a[0], a[2])
		copy(b, slices.Repeat([]byte{byte(a[1])}, len(b)))
	case cuLaunchKernelEx:
		b := at[launchBlock](a[0])
		name := f.names[a[1]]
		if f.Launched != nil {
			f.Launched(name, b.parameters[0])
		}
		if b.count > 0 {
			name += "+"
		}
		f.Launches, f.Stream = append(f.Launches, name), b.stream
	case cuTensorMapEncodeTiled:
		f.Maps = append(f.Maps, append([]uint64(nil), unsafe.Slice(at[uint64](a[4]), int(a[2]))...))
	case cuGetErrorName:
		*at[*byte](a[1]) = &fakeError[0]
	}
	return 0
}

var fakeError = []byte("CUDA_ERROR_FAKE\x00")
