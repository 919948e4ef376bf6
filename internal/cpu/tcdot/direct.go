// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package tcdot

// The direct path multiplies packed rows where they lie, and so saves what a panel costs, which is as much as two rows'
// products. The left operand is scaled so that its top is 2^0, the right one is as it is. The path takes less than panels do:
const (
	directMinX = 80
	directMinW = 96 // less would often be in doubt
	directMaxW = 135
	directMaxK = 1 << 15

	// The kernels' doubt: a group whose largest exponent sum, taken as the FP32 exponent field of the scaled product, is below.
	directLeast = 65
)

// A zero or subnormal has the field 0, and so one of x comes to directMaxW less the row's top, one of the weights to 0 at the most:
// neither may pass for a sum beyond doubt. A top of 71 would do; that 2^(M-25) is at least 2^-149 needs no more than one of 65.
const _ = uint(directLeast - 1 - (directMaxW - directMinX))

// An accumulator, of directMaxK products each below 2^(directMaxW-127+2), keeps a field of at most 152, so that weights are never
// scaled down: a zero's field would wrap. As it is, 151 is the most.
const _ = uint(1<<(152+127-2+1-directMaxW-127) - directMaxK)

// directRows is how many rows take the direct path; of more, panels are as fast.
func (s *ISA) directRows() int {
	switch {
	case s.bf16:
		return rowBlock / 2 // which is also what a block's running sums leave room for
	case s.direct != nil:
		return 4
	}
	return 0
}

// directFit is whether the direct path takes n rows of a product; if so, it sets their scales.
func (o *Worker) directFit(p *product, n0, n int) bool {
	w := p.r.top
	if n > o.isa.directRows() || p.r.packed == nil || p.r.columns || p.add ||
		w < directMinW || w > directMaxW || p.x.k > directMaxK {
		return false
	}
	for i, x := range p.x.top[n0 : n0+n] {
		if x < directMinX || !fast(x, w) {
			return false
		}
		o.directScale[i] = float(pow2(x - 127))
	}
	return true
}

// directOf computes n rows by the panel's worth of outputs that begins at m0. It reports whether all went without a doubt.
func (o *Worker) directOf(p *product, n0, n, m0 int) bool {
	lanes, groups := o.isa.lanes, p.x.groups()
	x, bytes := p.x.forPacked(o.isa.bf16), p.x.n*directSize
	w, dst := p.r.packed[0].panel(m0), p.at(n0, m0)
	acc := o.acc[:2*n*lanes]
	per := groups
	if p.segment > 0 {
		per = p.segment / group
	}
	for h := 0; h < groups; h += per {
		clear(acc[:n*lanes])
		if o.isa.direct(&w[h*group/2*lanes], min(per, groups-h), &x[h*bytes+n0*directSize], bytes, &acc[0], n) {
			return false
		}
		o.isa.finish[min(h, 1)](&acc[0], &o.directScale[0], &dst[0], 4*p.stride, n)
	}
	return true
}

// RowsCost is about what one output of packed Rows costs with n rows, in halves of a row's products. A panel costs as much as two
// rows; rows that need none wait for the weights to come from memory where they are fewer than two and a half.
func (s *ISA) RowsCost(n int) int {
	switch {
	case n == 0:
		return 0
	case n <= s.directRows():
		return max(2*n, 5)
	}
	return 2*n + 4
}
