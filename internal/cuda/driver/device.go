// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package driver

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
)

// ErrNoDriver says that the machine has no driver library, or one that does not start.
var ErrNoDriver = errors.New("no CUDA driver")

// ErrNoDevice says that the driver sees no GPU.
var ErrNoDevice = errors.New("no GPU")

// Device is a GPU with its primary context, which it shares with others in the process.
type Device struct {
	Name         string
	Major, Minor int // compute capability
	Processors   int // multiprocessors
	ClockKHz     int
	Driver       int // the driver's CUDA version, 13000 for 13.0

	lib     library
	handle  uintptr
	context uintptr
}

// The numbers of device attributes.
const (
	attributeClock      = 13
	attributeProcessors = 16
	attributeMajor      = 75
	attributeMinor      = 76
)

// Open opens GPU number n.
func Open(n int) (*Device, error) {
	lib, err := open()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDriver, err)
	}
	return openOn(lib, n)
}

// openOn is Open on a library.
func openOn(lib library, n int) (*Device, error) {
	d := &Device{lib: lib}
	if code := lib.call(cuInit, 0); code != 0 {
		return nil, fmt.Errorf("%w: %w", ErrNoDriver, &Error{"starting the driver", code, errorName(lib, code)})
	}
	out := new([2]int32) // what calls write; on the heap, where nothing moves
	if err := d.do("counting GPUs", cuDeviceGetCount, address(out)); err != nil {
		return nil, err
	}
	if int(out[0]) <= n {
		return nil, fmt.Errorf("%w: number %d of %d", ErrNoDevice, n, out[0])
	}
	if err := d.do("finding the GPU", cuDeviceGet, address(out), uintptr(n)); err != nil {
		return nil, err
	}
	d.handle = uintptr(out[0])
	name := new([128]byte)
	if err := d.do("reading the GPU's name", cuDeviceGetName, address(name), 128, d.handle); err != nil {
		return nil, err
	}
	d.Name = string(name[:max(0, bytes.IndexByte(name[:], 0))])
	for number, to := range map[uintptr]*int{attributeMajor: &d.Major, attributeMinor: &d.Minor, attributeProcessors: &d.Processors,
		attributeClock: &d.ClockKHz} {
		if err := d.do("reading the GPU's attributes", cuDeviceGetAttribute, address(out), number, d.handle); err != nil {
			return nil, err
		}
		*to = int(out[0])
	}
	if err := d.do("reading the driver's version", cuDriverGetVersion, address(out)); err != nil {
		return nil, err
	}
	d.Driver = int(out[0])
	context := new(uintptr)
	if err := d.do("retaining the GPU's primary context", cuDevicePrimaryCtxRetain, address(context), d.handle); err != nil {
		return nil, err
	}
	d.context = *context
	return d, nil
}

// Close gives the primary context back.
func (d *Device) Close() error {
	err := d.do("releasing the primary context", cuDevicePrimaryCtxRelease, d.handle)
	d.context = 0
	return err
}

// Current runs what needs the device's context to be the thread's, such as calls of libraries beside this one.
func (d *Device) Current(do func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if code := d.lib.call(cuCtxSetCurrent, d.context); code != 0 {
		return &Error{"entering the context", code, errorName(d.lib, code)}
	}
	return do()
}

// do makes one call in the device's context.
//
//go:uintptrescapes
func (d *Device) do(doing string, c call, args ...uintptr) error {
	if d.context != 0 { // the current context is the thread's
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if code := d.lib.call(cuCtxSetCurrent, d.context); code != 0 {
			return &Error{doing, code, errorName(d.lib, code)}
		}
	}
	if code := d.lib.call(c, args...); code != 0 {
		return &Error{doing, code, errorName(d.lib, code)}
	}
	return nil
}
