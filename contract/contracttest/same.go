// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contracttest

import (
	"errors"
	"fmt"

	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/bits"
)

func as[T error](err error, target *T) bool { return errors.As(err, target) }

// row is row i of a matrix of n columns.
func row[T any](m []T, i, n int) []T { return m[i*n : (i+1)*n : (i+1)*n] }

// same reports where two results differ in a bit.
func (s *subject) same(what string, have, want result) {
	s.t.Helper()
	o := s.oracle
	equal(s, what+": y", have.y, want.y, o.Hidden)
	equal(s, what+": logits", have.logits, want.logits, o.Experts)
	equal(s, what+": topk_ids", have.ids, want.ids, o.TopK)
	equal(s, what+": topk_weights", have.weights, want.weights, o.TopK)
	equal(s, what+": dx", have.dx, want.dx, o.Hidden)
	s.sameGradients(what, have.grads, want.grads)
}

func (s *subject) sameGradients(what string, have, want *contract.Gradients) {
	s.t.Helper()
	o := s.oracle
	equal(s, what+": router gradient", have.Router, want.Router, o.Hidden)
	equal(s, what+": shared gate gradient", have.SharedGate, want.SharedGate, o.Hidden)
	expert := func(name string, have, want *contract.ExpertGradient, width int) {
		s.t.Helper()
		equal(s, name+" gate gradient", have.Gate, want.Gate, o.Hidden)
		equal(s, name+" up gradient", have.Up, want.Up, o.Hidden)
		equal(s, name+" down gradient", have.Down, want.Down, width)
	}
	for e := range want.Experts {
		expert(fmt.Sprintf("%s: expert %d", what, e), &have.Experts[e], &want.Experts[e], o.Width)
	}
	if want.Shared != nil {
		expert(what+": shared expert", have.Shared, want.Shared, o.SharedWidth)
	}
}

// equal reports a difference of two matrices of n columns.
func equal[T safetensors.Element](s *subject, what string, have, want []T, n int) {
	s.t.Helper()
	if len(have) != len(want) {
		s.t.Errorf("%s: %d elements, want %d", what, len(have), len(want))
		return
	}
	if d := bits.Slices(what, []int{len(want) / n, n}, have, want, bits.AllowNonFinite); !d.Same() {
		s.t.Errorf("%v (have against want)", d)
	}
}
