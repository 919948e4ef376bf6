// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit

import (
	"fmt"

	"github.com/samebit/samebit/contract"
)

// RejectedError says that some tokens had a logit that is not finite (R13). The work is done: their y rows are NaN, no
// gradient comes from them, and no other token's bits are touched.
type RejectedError struct {
	Tokens, First int // how many, and which first
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("%d tokens rejected, the first is token %d: need finite router logits", e.Tokens, e.First)
}

// checkTokens says how many tokens [T,H] v has.
func checkTokens(name string, v []BF16, s contract.Shape) (int, error) {
	if len(v)%s.Hidden != 0 {
		return 0, fmt.Errorf("%s has %d elements: need a multiple of the hidden size %d", name, len(v), s.Hidden)
	}
	return len(v) / s.Hidden, nil
}

// checkReplay says what is wrong with replayed ids [T,K] (R3).
func checkReplay(ids []int32, tokens int, s contract.Shape) error {
	if len(ids) != tokens*s.TopK {
		return fmt.Errorf("replay has %d ids: need %d, %d for each of %d tokens", len(ids), tokens*s.TopK, s.TopK, tokens)
	}
	seen := make([]int, s.Experts) // the last token, counted from 1, that named the expert
	for t := range tokens {
		row := ids[t*s.TopK : (t+1)*s.TopK]
		padding := row[0] == -1
		for k, id := range row {
			switch {
			case padding != (id == -1):
				return fmt.Errorf("replay token %d slot %d: a row that is -1 in part: need ids throughout, or -1 throughout", t, k)
			case padding:
			case id < 0 || int(id) >= s.Experts:
				return fmt.Errorf("replay token %d slot %d: expert %d: need 0 to %d", t, k, id, s.Experts-1)
			case seen[id] == t+1:
				return fmt.Errorf("replay token %d slot %d: expert %d twice: need distinct experts", t, k, id)
			default:
				seen[id] = t + 1
			}
		}
	}
	return nil
}
