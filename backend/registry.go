// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package backend

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Options are what a backend may be told when it opens. None of them changes a bit.
type Options struct {
	Workers int // goroutines of a CPU backend; 0 for one a processor
	Device  int // number of the GPU that a GPU's backend runs on
}

var (
	registryMu sync.Mutex
	registry   = map[string]func(Options) (Backend, error){}
)

// Register makes a backend known by name. It panics where the name is taken.
func Register(name string, open func(Options) (Backend, error)) {
	registryMu.Lock()
	defer registryMu.Unlock()
	if registry[name] != nil {
		panic("backend: registered twice: " + name)
	}
	registry[name] = open
}

// Names are the registered backends, sorted.
func Names() []string {
	registryMu.Lock()
	defer registryMu.Unlock()
	var names []string
	for name := range registry {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// mostWorkers is more than machines have processors: each has memory of its own, and every stage wakes all.
const mostWorkers = 4096

// Open opens a registered backend. An *UnsupportedError says that this machine cannot run it.
func Open(name string, o Options) (Backend, error) {
	registryMu.Lock()
	open := registry[name]
	registryMu.Unlock()
	if open == nil {
		return nil, fmt.Errorf("backend %q is unknown: have %s", name, strings.Join(Names(), ", "))
	}
	if o.Workers < 0 || o.Workers > mostWorkers {
		return nil, fmt.Errorf("backend %s: %d workers: need 1 to %d, or 0 for one a processor", name, o.Workers, mostWorkers)
	}
	if o.Device < 0 {
		return nil, fmt.Errorf("backend %s: device %d: need at least 0", name, o.Device)
	}
	return open(o)
}
