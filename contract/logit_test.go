// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"testing"

	"github.com/samebit/samebit/contract"
)

// TestLogitSegments: a logit's segments are of 128, each begins anew, and they are added in order (R2).
func TestLogitSegments(t *testing.T) {
	const k = 512
	for _, c := range []struct {
		name string
		at   map[int]float32
		want float32
	}{
		{"one segment holds 128", map[int]float32{0: 1, 16: -1, 127: 0x1p-30}, 0x1p-30},
		{"a step cuts against the chain so far", map[int]float32{0: 1, 127: 0x1p-30, 126: -1}, 0},
		{"the chain so far cuts in one segment", map[int]float32{0: 1, 112: 0x1p-30, 127: -1}, 0},
		{"the chain is 128 long", map[int]float32{0: 1, 64: 0x1.8p-24, 128: -1}, 0},
		{"the next segment begins at +0", map[int]float32{0: 1, 128: 0x1.8p-24}, 1 + 0x1p-23},
		{"and so does the one after", map[int]float32{128: 1, 256: 0x1.8p-24}, 1 + 0x1p-23},
		{"segments ascend", map[int]float32{0: 0x1p60, 128: 1, 256: -0x1p60, 384: 1}, 1},
	} {
		x := make([]contract.BF16, k)
		for i, v := range c.at {
			x[i] = contract.Round(v)
		}
		same(t, c.name, contract.Logit(x, repeated(one, k), false), c.want)
	}
}
