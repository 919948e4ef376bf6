// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

// LocalWith is Local with another patience.
var LocalWith = localWith
