// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package tcdot

import "github.com/samebit/samebit/contract"

// Right is the operand whose outputs fill the lanes: matrices in memory as they are, or packed.
type Right struct {
	outputs, k int
	top        int
	columns    bool              // an output is a column of the matrix; otherwise a row
	parts      [][]contract.BF16 // one; or, of columns, matrices one below the other
	packed     []*Packed         // the same, packed, in place of parts
}

// Rows is the right operand of x * w^T: w is [M,K], an output a row. top is Top(w).
func Rows(w []contract.BF16, k, top int) Right {
	return Right{outputs: len(w) / k, k: k, top: top, parts: [][]contract.BF16{w}}
}

// Columns is the right operand of x * w: the parts, one below the other, are [K,M], an output a column. top is the largest
// of the parts' Top.
func Columns(m, top int, parts ...[]contract.BF16) Right {
	k := 0
	for _, p := range parts {
		k += len(p) / m
	}
	return Right{outputs: m, k: k, top: top, columns: true, parts: parts}
}

// output copies output j to the front of into, which is long enough.
func (r *Right) output(j int, into []contract.BF16) {
	if r.packed != nil {
		r.packedOutput(j, into)
		return
	}
	if !r.columns {
		copy(into, r.parts[0][j*r.k:][:r.k])
		return
	}
	for _, p := range r.parts {
		for at := j; at < len(p); at += r.outputs {
			into[0], into = p[at], into[1:]
		}
	}
}

// at finds row k of columns: the part that it is in, from there on, and how many rows of the part follow, itself included.
func (r *Right) at(k int) (rest []contract.BF16, rows int) {
	for _, p := range r.parts {
		if n := len(p) / r.outputs; k >= n {
			k -= n
			continue
		}
		rest = p[k*r.outputs:]
		break
	}
	return rest, len(rest) / r.outputs
}
