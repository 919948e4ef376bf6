// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Guard runs read, which may touch mapped data. Where the file has been shortened under the map, or its disk fails, the
// processor faults; Guard turns that into an error. It covers the goroutine that calls it and no other.
func Guard(read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr
		}:
			err = fmt.Errorf("memory fault at %#x: a mapped file became shorter, or cannot be read: %w", r.Addr(), r)
		default:
			panic(r)
		}
	}()
	return read()
}
