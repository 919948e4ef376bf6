// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bench

import "github.com/samebit/samebit"

// gradients are used from run to run: BF16, each run's own, or FP32, to which each run adds.
type gradients struct {
	*samebit.Gradients
	bytes int64 // of what they hold
}

// newGradients makes those of a pass.
func newGradients(l *samebit.Layer, p Pass) (g *gradients, err error) {
	g = &gradients{}
	if p == ForwardBackward {
		g.bytes = 2 * int64(l.Part().Size())
		g.Gradients, err = l.NewBF16Gradients(nil)
	} else {
		g.bytes = 4 * int64(l.Part().Size())
		g.Gradients, err = l.NewGradients(nil)
	}
	return g, err
}
