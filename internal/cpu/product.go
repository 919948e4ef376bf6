// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"math"

	"github.com/samebit/samebit/contract"
)

// kernels are one instruction set's tensor-core products (R1).
type kernels struct {
	name string
	// nt: out[i*stride+j] = tcdot(x[i], w[j]; segment) for all i and j; segment 0 for none.
	nt func(out []float32, stride int, x, w [][]contract.BF16, segment int)
	// nn: out[i*stride+j] = tcdot(x[i], column from+j of w) for all i and from <= from+j < to; w has a row for each k.
	nn func(out []float32, stride int, x, w [][]contract.BF16, from, to int)
	// fold: acc[i*stride+j] = RN(acc + tcdot(column i of a, column j of b)) for from <= i < to and all j; a and b have a
	// row for each k.
	fold func(acc []float32, stride int, a [][]contract.BF16, from, to int, b [][]contract.BF16)
}

// sets are the kernels that this machine can run, the best first.
func sets() []kernels { return []kernels{portable} }

// portable are the kernels in Go alone.
var portable = kernels{"go", portableNT, portableNN, portableFold}

func portableNT(out []float32, stride int, x, w [][]contract.BF16, segment int) {
	k := len(x[0])
	if segment == 0 {
		segment = k
	}
	for from := 0; from < k; from += segment {
		to := min(from+segment, k)
		a, b := packRows(x, from, to), newVectors(1, to-from)
		for j := range w {
			b.fill(0, w[j][from:to])
			for i := range x {
				at := &out[i*stride+j]
				if d := dot(a, i, b, 0); from == 0 {
					*at = d
				} else {
					accumulate(at, d)
				}
			}
		}
	}
}

func portableNN(out []float32, stride int, x, w [][]contract.BF16, from, to int) {
	a := packRows(x, 0, len(w))
	for j0 := from; j0 < to; j0 += block {
		j1 := min(j0+block, to)
		b := packColumns(w, j0, j1)
		for i := range x {
			for j := j0; j < j1; j++ {
				out[i*stride+j-from] = dot(a, i, b, j-j0)
			}
		}
	}
}

func portableFold(acc []float32, stride int, a [][]contract.BF16, from, to int, b [][]contract.BF16) {
	pa, pb := packColumns(a, from, to), packColumns(b, 0, len(b[0]))
	for i := from; i < to; i++ {
		for j := range b[0] {
			accumulate(&acc[i*stride+j], dot(pa, i-from, pb, j))
		}
	}
}

// accumulate adds v, rounding to nearest even; a NaN is 0x7FFFFFFF (R0).
func accumulate(acc *float32, v float32) {
	s := *acc + v
	if s != s {
		s = math.Float32frombits(0x7FFFFFFF)
	}
	*acc = s
}
