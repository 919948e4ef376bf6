// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package tidy knows what is half-written, so that a program that is interrupted leaves none of it behind.
package tidy

import (
	"os"
	"sync"
)

var (
	mu    sync.Mutex
	paths = map[string]bool{}
)

// Note takes note of a file or folder under a passing name, until done is called.
func Note(path string) (done func()) {
	mu.Lock()
	defer mu.Unlock()
	paths[path] = true
	return func() {
		mu.Lock()
		defer mu.Unlock()
		delete(paths, path)
	}
}

// Up removes what is noted. It is for the end of the program: whoever wrote there finds nothing any more, and what is noted later waits
// for ever.
func Up() {
	mu.Lock() // and never unlocked, so that nothing new appears
	for path := range paths {
		os.RemoveAll(path)
	}
}
