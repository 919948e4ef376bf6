// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract

// Tree sums v by adding adjacent pairs, level by level, an odd last one carried: ((v0+v1)+(v2+v3))+... (R4). An aligned
// subtree of 2^n values can be summed elsewhere and its sum put in its place. The sum of nothing is +0.
func Tree(v []float32) float32 {
	if len(v) == 0 {
		return 0
	}
	level := append([]float32(nil), v...)
	for len(level) > 1 {
		for i := 0; i < len(level)/2; i++ {
			level[i] = level[2*i] + level[2*i+1]
		}
		if odd := len(level) % 2; odd == 1 {
			level[len(level)/2] = level[len(level)-1]
		}
		level = level[:(len(level)+1)/2]
	}
	return level[0]
}
