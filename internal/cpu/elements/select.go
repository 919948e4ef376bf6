// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package elements

// selectTopGo is R3 by insertion: a later expert goes before an earlier one only if its logit is greater.
func selectTopGo(ids []int32, logits []float32) {
	n := 0
	for e := range logits {
		n = insertTop(ids, logits, n, e)
	}
}

// insertTop puts expert e among the first n of ids, of which there are then one more until ids is full.
func insertTop(ids []int32, logits []float32, n, e int) int {
	v := logits[e]
	if n == len(ids) {
		if !(v > logits[ids[n-1]]) {
			return n
		}
		n--
	}
	at := n
	for ; at > 0 && v > logits[ids[at-1]]; at-- {
		ids[at] = ids[at-1]
	}
	ids[at] = int32(e)
	return n + 1
}
