// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import "github.com/samebit/samebit/contract"

// JoinAs is Join with another version of the contract.
var JoinAs = join

// CommonParts is commonParts: each rank's part of H, and of I.
func CommonParts(ranks, hidden, width int) (ofH, ofI []contract.Range) {
	for _, p := range commonParts(ranks, hidden, width) {
		ofH, ofI = append(ofH, p.hidden), append(ofI, p.width)
	}
	return ofH, ofI
}
