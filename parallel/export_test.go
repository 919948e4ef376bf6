// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

// JoinAs is Join with another version of the contract.
var JoinAs = join
