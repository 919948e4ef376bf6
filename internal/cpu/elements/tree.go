// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package elements

import "math/bits"

// treeGo is contract.Tree from the root down: a row that is no power of two long has the largest one that fits on its
// left, and so every odd last value is carried to where the contract carries it.
func treeGo(v []float32) float32 {
	switch len(v) {
	case 0:
		return 0
	case 1:
		return v[0]
	case 8:
		return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]))
	}
	half := leftHalf(len(v))
	return treeGo(v[:half]) + treeGo(v[half:])
}

// leftHalf is the largest power of two below n > 1.
func leftHalf(n int) int { return 1 << (bits.Len(uint(n-1)) - 1) }
