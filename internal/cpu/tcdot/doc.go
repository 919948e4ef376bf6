// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package tcdot computes products of BF16 matrices by the tensor core's law (R1), to the bit, on AVX-512, AVX2 or in Go alone.
//
// A Left is the operand whose rows are walked; a Right the one whose outputs fill a vector's lanes. Lanes come in panels of
// four vectors: 64 outputs on AVX-512, 32 on AVX2. For every 32 k a panel is expanded into L1: of each k the outputs' FP32
// values and then their exponents, a byte each, byte j of a 32-bit word belonging to that lane of vector j. Then all rows of
// the Left, in blocks, walk the panel, two groups of 16 k. Why that gives the law's bits:
//
// Domain. A row's largest exponent field is its top, a Right's is that of the whole matrix. Values are scaled by powers of
// two so that both tops stand for 2^0. The fast path takes finite operands with tops of at least 2^-63 and a product of tops
// from 2^-62 to 2^100; anything else goes to the contract's own scalar function, and so does every doubt below.
//
// Scale. Exponents are kept down to 63 binades below the top, and a zero is far below all, so that a saturating byte sum is
// 1 to 127 for a product and negative for a zero. The largest sum of a group is exact if it is above 64: clamping only raises
// small ones, to 64 at the most. If it is 1 to 64, the panel is in doubt; below, every product is zero. With the
// accumulator's exponent this gives the law's M, never near its floor of -133.
//
// Terms. 2^(25-M) goes onto the left value by an integer addition to its exponent field. A product of two 8-bit significands
// is exact in FP32, and the truncating conversion cuts it to the law's multiple of 2^(M-25). What underflows on the way is
// below that multiple anyway. Sixteen products of at most 255*255*2^11 stay below 2^31; with the accumulator the sum may wrap
// to a magnitude of 2^31-2^26 or more, which is the second doubt.
//
// Rounding. AVX-512 converts back toward zero. AVX2 and Go clear of the magnitude A the bits A>>24, among which is the one
// worth half a unit in the last place, so that rounding to nearest truncates. Scaling back is exact: every sum is a multiple
// of 2^-149.
//
// A matrix that is used again and again is packed once, in the order in which panels are expanded. The same packed matrix
// serves the product with its transpose, and the product with itself, whose chunks are turned back on the way.
//
// Few rows do without the panel, which takes as long as two of them: direct.go. There M comes from words, of which the largest
// sum of one operand's magnitude and the other's exponent has the largest exponent sum in front. The scale goes onto the weights'
// exponents, 32 at once. Instructions on BF16 then multiply without a conversion to FP32: that is all that avx512bf16 has on avx512.
//
// On a Zen 5 core at 4.1 GHz a group costs 84.5 vector operations for 256 multiply-adds, of which four issue a cycle: 50
// G multiply-adds a second at the most, 44 reached inside a panel, 40 for whole products of 64 rows. Expanding a panel costs 84
// more, once for all rows. Without one it is 94 for one row and 86 for each of many with BF16's instructions, 110 and 102 otherwise:
// 35 and 32 G multiply-adds a second for one row, 17 by a panel, and 40, 36 and 30 for three.
package tcdot
