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

// Make has a file or folder made under a passing name, which it takes note of until done is called. Nothing is tidied in between, so
// that there is no moment in which it is there and not noted.
func Make(create func() (path string, err error)) (done func(), err error) {
	mu.Lock()
	defer mu.Unlock()
	path, err := create()
	if err != nil {
		return nil, err
	}
	paths[path] = true
	return func() {
		mu.Lock()
		defer mu.Unlock()
		delete(paths, path)
	}, nil
}

// Up removes what is noted. It is for the end of the program: whoever wrote there finds nothing any more, and what is made later waits
// for ever.
func Up() {
	mu.Lock() // and never unlocked, so that nothing new appears
	for path := range paths {
		os.RemoveAll(path)
	}
}
