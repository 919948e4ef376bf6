// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"strings"

	"github.com/samebit/samebit/internal/cpu/elements"
	"github.com/samebit/samebit/internal/cpu/tcdot"
)

// kernels are one instruction set's: products, and what works element by element.
type kernels struct {
	isa *tcdot.ISA
	*elements.Set
}

func (k kernels) name() string { return k.isa.Name() }

// sets are the kernels that this machine can run, the best first and Go's last. Instructions that only products use are a set
// of tcdot alone, whose name begins with that of its elements.
func sets() []kernels {
	var k []kernels
	for _, isa := range tcdot.Sets() {
		for _, e := range elements.Sets() {
			if strings.HasPrefix(isa.Name(), e.Name) {
				k = append(k, kernels{isa, e})
			}
		}
	}
	return k
}

// Kernels are the names of the kernels that this machine can run, the best first and go last.
func Kernels() []string {
	var names []string
	for _, k := range sets() {
		names = append(names, k.name())
	}
	return names
}
