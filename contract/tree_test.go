// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/samebit/samebit/contract"
)

// TestTreeSubtrees: an aligned part of 2^n values can be summed elsewhere and its sum put in its place, which is how ranks
// share a tree (R4, R12).
func TestTreeSubtrees(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 16))
	for n := range 130 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		whole := contract.Tree(v)
		for size := 1; size <= 64; size *= 2 {
			var sums []float32
			for i := 0; i < n; i += size {
				sums = append(sums, contract.Tree(v[i:min(i+size, n)]))
			}
			same(t, fmt.Sprintf("%d values in subtrees of %d", n, size), contract.Tree(sums), whole)
		}
	}
}

// TestTreeDefinition writes small trees out.
func TestTreeDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(18, 16))
	for range 1000 {
		v := make([]float32, 7)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		same(t, "3", contract.Tree(v[:3]), (v[0]+v[1])+v[2])
		same(t, "5", contract.Tree(v[:5]), ((v[0]+v[1])+(v[2]+v[3]))+v[4])
		same(t, "6", contract.Tree(v[:6]), ((v[0]+v[1])+(v[2]+v[3]))+(v[4]+v[5]))
		same(t, "7", contract.Tree(v), ((v[0]+v[1])+(v[2]+v[3]))+((v[4]+v[5])+v[6]))
	}
	same(t, "nothing", contract.Tree(nil), 0)
}
