// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/internal/cuda/image"
)

// Combine is R7; a token without work gives +0, a rejected one NaN.
func (l *layer) Combine(a backend.Combine) error {
	if a.Rows.Tokens == 0 {
		return nil
	}
	l.stages.Lock()
	defer l.stages.Unlock()
	p := combineParams{row: i32(a.Rows.Row), in: bf16(a.In), weights: fp32(a.Weights), z: fp32(a.Z), status: i32(a.Status), y: bf16(a.Y),
		tokens: l.count(a.Rows.Tokens), hidden: int32(l.Hidden), slots: int32(l.TopK), shared: l.shared()}
	kernel, each := image.CombineAnyFwdBf16, 1
	if l.Hidden%8 == 0 && p.in%16 == 0 && p.y%16 == 0 {
		kernel, each = image.CombineRowsFwdBf16, 8
	}
	return launch(l.Backend, kernel, [3]int{a.Rows.Tokens}, min(combineThreads, ceil(ceil(l.Hidden, each), 32)*32), 8*(l.TopK+1), &p)
}
