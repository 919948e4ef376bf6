// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract

// RowGradient is what the backward of one expert row makes (R8).
type RowGradient struct {
	DGate, DUp []BF16  // [I]
	HW         []BF16  // [I], bf16(h*w): the row's part of the down projection's gradient (R11)
	DWeight    float32 // the gradient of the row's route weight
}

// Backward is the backward of one row: dy [H] is the token's upstream gradient, g and u [I] the forward's, w the row's
// route weight, which for the shared expert is sigmoid(z) (R8).
func (e *Expert) Backward(dy []BF16, g, u []float32, w float32) RowGradient {
	width := len(g)
	r := RowGradient{DGate: make([]BF16, width), DUp: make([]BF16, width), HW: make([]BF16, width)}
	terms := make([]float32, width)
	for i := range terms {
		q := TCDot(dy, column(e.Down, i, width))
		h := SwiGLU(g[i], u[i]).Float32()
		terms[i] = float32(q * h)
		r.HW[i] = Round(h * w)
		r.DGate[i], r.DUp[i] = SwiGLUBackward(g[i], u[i], q, w)
	}
	r.DWeight = Tree(terms)
	return r
}

// SwiGLUBackward gives the gradients of g and u from q, that of h before the route weight w (R8).
func SwiGLUBackward(g, u, q, w float32) (dg, du BF16) {
	dh := q * w
	s := Sigmoid(g)
	// d silu(g)/dg = s * (1 + g*(1-s))
	slope := s * (1 + float32(g*(1-s)))
	return Round(float32(dh*u) * slope), Round(dh * silu(g))
}

// InputRow is the row's part of dx [H], in BF16: [dg|du] times [Wgate;Wup], the gate part first (R9).
func (e *Expert) InputRow(dg, du []BF16) []BF16 {
	hidden := len(e.Gate) / len(dg)
	d := append(append([]BF16(nil), dg...), du...)
	out := make([]BF16, hidden)
	for j := range out {
		out[j] = Round(TCDot(d, append(column(e.Gate, j, hidden), column(e.Up, j, hidden)...)))
	}
	return out
}

// Scaled is a row of the router and the gradient of its logit.
type Scaled struct {
	By  float32
	Row []BF16 // [H]
}

// InputGradient is the token's dx [H]: from +0 the experts' rows in ascending expert id, the shared expert's row, then the
// router's rows, each times its logit's gradient, in ascending expert id and the shared gate's last; every product and sum
// rounded to nearest even, and one cast (R9).
func InputGradient(hidden int, rows [][]BF16, router []Scaled) []BF16 {
	dx := make([]BF16, hidden)
	for j := range dx {
		var sum float32
		for _, r := range rows {
			sum += r[j].Float32()
		}
		for _, r := range router {
			sum += float32(r.By * r.Row[j].Float32())
		}
		dx[j] = Round(sum)
	}
	return dx
}

// AllZero reports whether dy is zero throughout, of either sign: such a token has a dx of +0 and takes part in no
// gradient (R9).
func AllZero(dy []BF16) bool {
	for _, v := range dy {
		if !v.Zero() {
			return false
		}
	}
	return true
}
