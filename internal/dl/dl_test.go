// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package dl

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// An error has the linker's reason, also where goroutines move between threads: many more than there are processors, each of which
// gives way again and again.
func TestReasons(t *testing.T) {
	var group sync.WaitGroup
	for g := range 8 * runtime.GOMAXPROCS(0) {
		group.Go(func() {
			name := fmt.Sprintf("libnosuch%d.so", g)
			for range 200 {
				if _, err := Open(name, false); err == nil || !strings.Contains(err.Error(), name+": cannot open shared object file") {
					t.Errorf("error %v, want the linker's reason", err)
					return
				}
				runtime.Gosched()
			}
		})
	}
	group.Wait()
}

func TestSymbols(t *testing.T) {
	for _, global := range []bool{false, true} {
		libc, err := Open("libc.so.6", global)
		if err != nil {
			t.Skip(err) // a machine of another C library
		}
		if at, err := Symbol(libc, "getpid"); err != nil || at == 0 {
			t.Errorf("getpid at %#x, %v", at, err)
		}
		if _, err := Symbol(libc, "no_such_symbol"); err == nil || !strings.Contains(err.Error(), "no_such_symbol") {
			t.Errorf("error %v, want the linker's reason", err)
		}
	}
}
