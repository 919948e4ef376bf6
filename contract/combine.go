// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract

// Combine is the token's y [H]: from +0 the experts' rows, each times its weight, in slot order, then the shared expert's
// row times sigmoid(z), every product and sum rounded to nearest even, and one cast (R7). rows is K times [H]; shared is
// nil where there is no shared expert.
func Combine(rows [][]BF16, w []float32, shared []BF16, z float32) []BF16 {
	hidden := len(shared)
	if len(rows) > 0 {
		hidden = len(rows[0])
	}
	y := make([]BF16, hidden)
	s := Sigmoid(z)
	for j := range y {
		var sum float32
		for k := range rows {
			sum += float32(rows[k][j].Float32() * w[k])
		}
		if shared != nil {
			sum += float32(shared[j].Float32() * s)
		}
		y[j] = Round(sum)
	}
	return y
}
