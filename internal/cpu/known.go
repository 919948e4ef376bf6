// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"fmt"
	"math"
	"slices"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/cpu/tcdot"
)

// known are products of one group, and what the law that was measured on an H200 gives for them (R1).
var known = []struct {
	a, b []contract.BF16
	want uint32
}{
	// 1 + 15 * 2^-26 is cut to 1: each small term by itself, toward zero.
	{terms(0x3F80, 0x3280, 15), terms(0x3F80, 0x3F80, 15), 0x3F800000},
	// 1 - 2^-27 is 1 - 0: a negative term is cut toward zero too.
	{terms(0x3F80, 0xB280, 1), terms(0x3F80, 0x3F00, 1), 0x3F800000},
	// 1 + 2^-24 + 2^-24 is exact; the sum is cut to 24 bits only once.
	{terms(0x3F80, 0x3380, 2), terms(0x3F80, 0x3F80, 2), 0x3F800001},
	// Sixteen of the largest significands.
	{terms(0x3FFF, 0x3FFF, 15), terms(0x3FFF, 0x3FFF, 15), 0x427E0100},
}

// terms is first, and then n times rest.
func terms(first, rest contract.BF16, n int) []contract.BF16 {
	v := []contract.BF16{first}
	for range n {
		v = append(v, rest)
	}
	return v
}

// proveLaw refuses kernels, or a compiler's floating point, that do not give the known answers (R14).
func proveLaw(k kernels) error {
	o := tcdot.NewWorker(k.isa)
	for _, x := range known {
		var left tcdot.Left
		left.Set([][]contract.BF16{x.a})
		// A whole panel of outputs, as packed weights have them.
		var out [block]float32
		b := slices.Repeat(x.b, block)
		o.Dot(out[:1], 1, &left, tcdot.Rows(x.b, len(x.b), tcdot.Top(x.b)), 0, 1, 0)
		have := []float32{out[0], contract.TCDot(x.a, x.b)}
		if n := k.isa.Words(block, len(x.b)); n > 0 {
			o.Dot(out[:], block, &left, o.Pack(b, len(x.b), make([]uint32, n)).Rows(), 0, block, 0)
			have = append(have, out[:]...)
		}
		for _, have := range have {
			if math.Float32bits(have) != x.want {
				return &backend.UnsupportedError{Backend: "cpu",
					Need: fmt.Sprintf("floating point that follows the contract's law (R1): %08X", x.want),
					Have: fmt.Sprintf("%s kernels that give %08X", k.name(), math.Float32bits(have))}
			}
		}
	}
	return nil
}
