// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package elements

import (
	"math/bits"

	"github.com/samebit/samebit/contract"
)

// treePart is as much of a tree as is summed in one array, which the stack holds.
const treePart = 512

// treeVector is contract.Tree in levels of 8.
func treeVector(v []float32) float32 {
	if len(v) > treePart {
		half := leftHalf(len(v))
		return treeVector(v[:half]) + treeVector(v[half:])
	}
	var level [treePart / 8]float32
	for len(v) >= 64 {
		blocks := len(v) / 64
		tree256(&level[0], &v[0], blocks)
		n := 8 * blocks
		for v = v[64*blocks:]; len(v) > 0; n++ {
			m := min(8, len(v))
			level[n] = treeGo(v[:m])
			v = v[m:]
		}
		v = level[:n]
	}
	return treeGo(v)
}

// selectTopVector is selectTopGo over the few that selectMask256 leaves of each part. A part's k largest are marked
// in it whatever the other parts hold, and so are all equals of the last of them.
func selectTopVector(ids []int32, logits []float32) {
	const part = 1024
	if len(ids) > 16 {
		selectTopGo(ids, logits)
		return
	}
	n, from := 0, 0
	for len(logits)-from >= 64 {
		blocks := min(part, len(logits)-from) / 16
		var mask [part / 64]uint64
		selectMask256(&mask[0], &logits[from], len(ids), blocks)
		for i, m := range mask[:(blocks+3)/4] {
			for ; m != 0; m &= m - 1 {
				n = insertTop(ids, logits, n, from+64*i+bits.TrailingZeros64(m))
			}
		}
		from += 16 * blocks
	}
	for e := from; e < len(logits); e++ {
		n = insertTop(ids, logits, n, e)
	}
}

func allZeroVector(v []contract.BF16) bool {
	if n := len(v) / 64 * 64; n > 0 {
		if zeros256(bits16(v), n) < n {
			return false
		}
		v = v[n:]
	}
	return contract.AllZero(v)
}

func nonFiniteVector(v []contract.BF16) int {
	from := 0
	if n := len(v) / 64 * 64; n > 0 {
		from = finites256(bits16(v), n)
	}
	if i := nonFiniteGo(v[from:]); i >= 0 {
		return from + i
	}
	return -1
}
