// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract

import "sort"

// LogitSegment is the length of the segments of a router logit's dot product (R2).
const LogitSegment = 128

// Logit is one router logit, or the shared-expert gate's, of token x [H] and the router's row w [H]: FP32, and rounded to
// BF16 afterwards where asked (R2).
func Logit(x, w []BF16, bf16 bool) float32 {
	l := TCDotSegments(x, w, LogitSegment)
	if bf16 {
		l = nan(Round(l).Float32())
	}
	return l
}

// Select gives the ids of the k largest logits [E], by logit descending, then expert id ascending; -0 equals +0 (R3). The
// logits are finite.
func Select(logits []float32, k int) []int32 {
	ids := make([]int32, len(logits))
	for e := range ids {
		ids[e] = int32(e)
	}
	sort.SliceStable(ids, func(i, j int) bool { return logits[ids[i]] > logits[ids[j]] })
	return ids[:k]
}

// RouteWeights gives the weight [K] of each selected expert: the softmax over the selected (norm) or over all E (R4). The
// weights come from the live logits, whatever the ids.
func RouteWeights(logits []float32, ids []int32, norm bool) []float32 {
	if !norm {
		p := Softmax(logits)
		w := make([]float32, len(ids))
		for k, e := range ids {
			w[k] = p[e]
		}
		return w
	}
	selected := make([]float32, len(ids))
	for k, e := range ids {
		selected[k] = logits[e]
	}
	return Softmax(selected)
}

// Softmax is exp(l - max) over its tree sum (R4).
func Softmax(l []float32) []float32 {
	largest := l[0]
	for _, v := range l {
		largest = max(largest, v)
	}
	u := make([]float32, len(l))
	for i, v := range l {
		u[i] = Exp(v - largest)
	}
	sum := Tree(u)
	for i := range u {
		u[i] /= sum
	}
	return u
}

// RouteGradient is the gradient of the logits, from the weights' dw [K] (R10). With norm it is [K], one for each selected
// expert; the other logits get exactly zero. Without, it is [E], p [E] being the softmax over all.
func RouteGradient(w, dw []float32, ids []int32, p []float32, norm bool) []float32 {
	products := make([]float32, len(w))
	for k := range w {
		products[k] = float32(w[k] * dw[k])
	}
	c := Tree(products)
	if norm {
		dl := make([]float32, len(w))
		for k := range dl {
			dl[k] = w[k] * (dw[k] - c)
		}
		return dl
	}
	dl := make([]float32, len(p))
	for e := range dl {
		dl[e] = p[e] * (0 - c)
	}
	for k, e := range ids {
		dl[e] = p[e] * (dw[k] - c)
	}
	return dl
}

// SharedGateGradient is the gradient of the shared expert's gate logit z, from dw, that of its weight sigmoid(z) (R10).
func SharedGateGradient(z, dw float32) float32 {
	s := Sigmoid(z)
	return dw * float32(s*(1-s))
}
