// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"sync"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
)

// oracle compares the backend with the contract's own layer, which takes one token at a time (R0 to R11).
func oracle(c *check) {
	n := c.few(40) // more than one segment of the shared expert's stream
	if c.Shape.Hidden*c.Shape.Width > 1<<18 {
		n = c.few(6) // the contract is scalar code
	}
	w := c.input(n)
	clear(w.dy[5*c.Shape.Hidden : 6*c.Shape.Hidden])
	w.gradients = true
	c.same("contract.Layer", c.run(w).everything(), c.contract(w).everything())
}

// contract gives the pass of the contract's layer.
func (c *check) contract(w work) pass {
	l := contract.Layer{Shape: c.Shape, Weights: *c.Weights, BF16Logits: c.Options.RouterLogits == samebit.BF16Logits}
	p := pass{Shape: c.Shape, grads: c.Shape.NewGradients()}
	h := c.Shape.Hidden
	tokens := make([]contract.Token, len(w.x)/h)
	var group sync.WaitGroup
	for t := range tokens {
		group.Go(func() { tokens[t] = l.Forward(w.x[t*h:(t+1)*h], nil) })
	}
	group.Wait()
	for t, token := range tokens {
		p.y = append(p.y, token.Y...)
		p.logits = append(p.logits, token.Logits...)
		p.ids = append(p.ids, token.IDs...)
		p.weights = append(p.weights, token.Weights...)
		p.dx = append(p.dx, l.Backward(token, w.dy[t*h:(t+1)*h], p.grads)...)
	}
	p.grads.Flush()
	return p
}
