// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contracttest

import (
	"bytes"
	"slices"
	"testing"

	"github.com/samebit/samebit/backend"
)

// poisoned registers a twin of a backend whose buffers are full of NaN, and of ids far out of range, before each use: an
// element that is not written, or read before it is, shows.
func poisoned(t *testing.T, name string) string {
	t.Helper()
	if name == "" {
		name = "cpu"
	}
	twin := "poisoned-" + name + "-" + t.Name()
	if slices.Contains(backend.Names(), twin) { // the test has run before
		return twin
	}
	backend.Register(twin, func(o backend.Options) (backend.Backend, error) {
		b, err := backend.Open(name, o)
		if err != nil {
			return nil, err
		}
		return poison{b}, nil
	})
	return twin
}

type poison struct{ backend.Backend }

func (p poison) Alloc(d backend.Dtype, n int) (backend.Buffer, error) {
	b, err := p.Backend.Alloc(d, n)
	if err != nil {
		return nil, err
	}
	// 0x7FFF is a NaN in BF16, 0x7FFF7FFF one in FP32.
	return b, p.Write(b, bytes.Repeat([]byte{0xFF, 0x7F}, n*d.Size()/2))
}
