// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package dl

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// Open loads a library for the life of the process, with its symbols bound at once; global has libraries that come later see them. An
// error has the linker's reason.
func Open(name string, global bool) (handle uintptr, err error) {
	// The reason is kept for the thread that failed, and asked for in a call of its own: the goroutine must not move in between.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mode := purego.RTLD_NOW | purego.RTLD_LOCAL
	if global {
		mode = purego.RTLD_NOW | purego.RTLD_GLOBAL
	}
	return purego.Dlopen(name, mode)
}

// Symbol is where a library's symbol lies.
func Symbol(handle uintptr, name string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlsym(handle, name)
}
