// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
)

// routerModes compares every way to route with the contract's layer: weights over the selected experts or over all, logits in FP32
// or rounded to BF16 (R2 to R4, R10). Experts stand in pairs of equal router rows, so that every logit is there twice and the ids
// decide. It takes a narrow layer with the subject's own experts and slots, since the routes do not depend on the width.
func routerModes(c *check) {
	for _, norm := range []bool{true, false} {
		for _, logits := range []samebit.Precision{samebit.FP32, samebit.BF16Logits} {
			c.routerMode(norm, logits)
		}
	}
}

func (c *check) routerMode(norm bool, logits samebit.Precision) {
	s := contract.Shape{Hidden: 64, Experts: c.Shape.Experts, TopK: c.Shape.TopK, Width: 16, SharedWidth: 16, NormTopK: norm}
	w := testgen.Weights(s, seed)
	for e := 1; e < s.Experts; e += 2 {
		copy(w.Router[e*s.Hidden:(e+1)*s.Hidden], w.Router[(e-1)*s.Hidden:e*s.Hidden])
	}
	o := c.Options
	o.RouterLogits, o.NormTopK = logits, nil
	narrow, err := New("a narrow layer", s, &w, o)
	c.must(err)
	defer narrow.Close()
	d := &check{Subject: narrow, most: c.most, result: c.result}
	of := d.input(d.few(40))
	of.gradients = true
	name := map[samebit.Precision]string{samebit.FP32: "FP32", samebit.BF16Logits: "BF16"}[logits]
	have := d.run(of)
	d.same(fmt.Sprintf("%s logits, norm_topk_prob %t", name, norm), have.everything(), d.contract(of).everything())
	d.claim("ties go to the lower id", d.wrongTie(have.ids), "")
}

// wrongTie names a token whose expert of a pair was taken without the lower one before it, or nothing.
func (c *check) wrongTie(ids []int32) string {
	k := c.Shape.TopK
	for i, e := range ids {
		if e%2 == 1 && (i%k == 0 || ids[i-1] != e-1) {
			return fmt.Sprintf("token %d slot %d has expert %d", i/k, i%k, e)
		}
	}
	return ""
}
