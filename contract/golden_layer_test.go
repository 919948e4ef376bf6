// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"fmt"
	"math"

	"github.com/samebit/samebit/contract"
)

// activation is SwiGLU, forward and backward (R6, R8).
func (g *goldenList) activation() {
	forward := func(why string, gate, up float32) { g.add("swiglu", why, object{"g": hex(gate), "u": hex(up)}) }
	forward("g/(1+e^-g), not g*s", f32(0xC0264204), f32(0x4097C132))
	forward("silu(g)*u, not (g*u)/(1+e^-g)", f32(0x3FFC675D), f32(0x3F939AF1))
	forward("silu(g)*u, not (g*u)/(1+e^-g)", f32(0x4020738E), f32(0xBF4CE891))
	for _, gate := range []float32{0, f32(0x80000000), 1, -1, 20, -20, 88, -88, -88.8, -89, -110, 1e30, -1e30, float32(math.Inf(1)), float32(math.Inf(-1)), f32(0x7FC00001)} {
		forward("ends", gate, 1.5)
	}
	forward("Inf*0", float32(math.Inf(1)), 0)
	for range 16 {
		forward("random", float32(g.r.NormFloat64()*2), float32(g.r.NormFloat64()*2))
	}

	backward := func(why string, gate, up, q, w float32) {
		g.add("swiglu_backward", why, object{"g": hex(gate), "u": hex(up), "q": hex(q), "w": hex(w)})
	}
	for _, c := range []struct {
		why  string
		bits [4]uint32
	}{
		{"the order of dg's products", [4]uint32{0xBFA57AA0, 0x4027C4BB, 0x3F57D029, 0xBD804917}},
		{"the order of dg's products", [4]uint32{0x3FAD6315, 0x3F371C3F, 0x4014FCCE, 0xBE8D03AD}},
		{"du by g/(1+e^-g), not g*s", [4]uint32{0x3F89C9A6, 0x3FA691B4, 0x3FC20849, 0x3F3FDC47}},
		{"du by g/(1+e^-g), not g*s", [4]uint32{0x3EF91F4E, 0xC0ACF9C1, 0x3EC81560, 0x3F294FD9}},
		{"slope by g*(1-s), not g-g*s", [4]uint32{0xBFA2403D, 0x3F6EA1D3, 0x3EB54DDE, 0x3E8D9AEE}},
		{"slope by g*(1-s), not g-g*s", [4]uint32{0xBFA3CC43, 0xBF4EADAC, 0xBFD2A3FB, 0x3F4A3CEF}},
		{"slope by s*(1+g*(1-s)), not s+silu*(1-s)", [4]uint32{0xBFA1CAE9, 0xC07DAD85, 0x3FD91DB3, 0x3F0F98A5}},
		{"slope by s*(1+g*(1-s)), not s+silu*(1-s)", [4]uint32{0xBFA430F0, 0x3F9D7378, 0xBF93CD60, 0x3EA02CD6}},
		{"(dh*u)*slope, not dh*(u*slope)", [4]uint32{0x3FABACE8, 0x3F9F7D25, 0x3F7C9FA0, 0x3F532174}},
		{"(dh*u)*slope, not dh*(u*slope)", [4]uint32{0xBF23CC59, 0x3C512622, 0x3F591495, 0x3EB281EA}},
		{"(dh*u)*slope, not (dh*slope)*u", [4]uint32{0x3F63D338, 0xC0915CF1, 0xBE3D5EF8, 0x3DEB65C0}},
		{"(dh*u)*slope, not (dh*slope)*u", [4]uint32{0x4035F526, 0xC048583E, 0xBF3D9D3F, 0x3F403286}},
		{"(q*w)*u, not (q*u)*w", [4]uint32{0x3FD3D3E9, 0xBF294420, 0xBF740E50, 0x3E88FEFC}},
		{"(q*w)*u, not (q*u)*w", [4]uint32{0xBF01CF34, 0x3F9B5AA2, 0xBF1AA1D6, 0x3F1F9ABD}},
		{"(q*w)*silu, not q*(w*silu)", [4]uint32{0x3FA7FE81, 0xBFD8E132, 0xBF0E0788, 0x3E55146C}},
		{"(q*w)*silu, not q*(w*silu)", [4]uint32{0xBEB04E15, 0xBE8B2A71, 0x3F81A968, 0x3F012BAF}},
	} {
		backward(c.why, f32(c.bits[0]), f32(c.bits[1]), f32(c.bits[2]), f32(c.bits[3]))
	}
	for _, gate := range []float32{0, f32(0x80000000), 30, -30, -89, 100} {
		backward("ends", gate, 1.5, -0.5, 0.25)
	}
	backward("NaN", 1, f32(0xFFC00001), 1, 1)
	backward("-0", 1, f32(0x80000000), 1, 0.5)
	for range 48 {
		backward("random", float32(g.r.NormFloat64()*2), float32(g.r.NormFloat64()*2), float32(g.r.NormFloat64()), g.r.Float32())
	}
}

// routing is selection and route weights (R3, R4).
func (g *goldenList) routing() {
	minus := f32(0x80000000)
	topk := func(why string, k int, logits ...float32) {
		g.add("topk", why, object{"logits": hexes(logits), "k": k})
	}
	topk("all equal", 4, 1, 1, 1, 1, 1, 1, 1, 1)
	topk("tie at the boundary", 3, 1, 5, 2, 2, 7, 2)
	topk("the 10th equals the 11th", 10, 3, 9, 3, 8, 7, 3, 6, 5, 4, 3.5, 3.25, 3.125, 0)
	topk("-0 equals +0", 3, minus, 0, minus, 0, minus)
	topk("-0 equals +0", 2, 0, minus, 0, -1)
	topk("all negative", 2, -8.5, -8, -9, -8.25)
	topk("huge", 2, -1e38, 1e38, 3e38, -3e38)
	topk("equal in BF16 only", 2, 1, 1+1./512, 1)
	topk("subnormal", 2, f32(1), f32(2), f32(0x80000001), 0)
	topk("K=1", 1, 2, 3, 3)
	topk("K=E", 3, 2, 3, 3)

	for _, norm := range []bool{true, false} {
		weights := func(why string, logits []float32, ids ...int32) {
			g.add("weights", why, object{"logits": hexes(logits), "ids": ids, "norm": norm})
		}
		random := make([]float32, 11)
		for range 4 {
			for i := range random {
				random[i] = float32(g.r.NormFloat64() * 3)
			}
			weights("selected", random, contract.Select(random, 4)...)
			weights("seven", random, contract.Select(random, 7)...)
			weights("K=1", random, contract.Select(random, 1)...)
			weights("K=E", random, contract.Select(random, 11)...)
			weights("replayed, not the largest", random, 3, 9, 0)
			weights("replayed, in another slot order", random, 10, 1, 2, 3, 4)
		}
		weights("equal", []float32{2, 2, 2, 2, 2}, 0, 1, 2, 3)
		weights("the largest is subtracted", []float32{1e30, -1e30, 88, 300, 299}, 3, 4)
		weights("far apart", []float32{-100, 0, 3, -87.5}, 1, 0, 3)
		weights("l - max overflows", []float32{-3e38, 3e38}, 1, 0)
	}
}

// combining is the sum over slots (R7); its cancelling values tell orders apart.
func (g *goldenList) combining() {
	combine := func(why string, rows [][]contract.BF16, w []float32, shared []contract.BF16, z any) {
		hexed := make([][]string, len(rows))
		for k := range rows {
			hexed[k] = hexes(rows[k])
		}
		in := object{"rows": hexed, "w": hexes(w), "shared": "", "z": z}
		if shared != nil {
			in["shared"] = hexes(shared)
		}
		g.add("combine", why, in)
	}
	for _, order := range [][]float32{{1e20, 1, -1e20, 1}, {1, 1e20, -1e20, 1}, {1, 1, 1e20, -1e20}, {1e20, -1e20, 1, 1}} {
		var rows [][]contract.BF16
		for _, v := range order {
			rows = append(rows, []contract.BF16{contract.Round(v)})
		}
		combine("slot order", rows, []float32{1, 1, 1, 1}, nil, "")
		combine("slot order, then the shared row", rows, []float32{1, 1, 1, 1}, []contract.BF16{contract.Round(3)}, hex(float32(40)))
	}
	combine("the sum starts at +0", [][]contract.BF16{{sign, sign}}, []float32{1, 0}, nil, "")
	combine("one cast at the end", [][]contract.BF16{{one}, {power(-8)}, {power(-16)}}, []float32{1, 1, 1}, nil, "")
	combine("products are not fused", [][]contract.BF16{{0x3F81}, {0xBF81}}, []float32{f32(0x3EAAAAAB), f32(0x3EAAAAAA)}, nil, "")
	combine("shared by sigmoid(z)", [][]contract.BF16{{0, one}}, []float32{1}, []contract.BF16{one, one}, hex(float32(-1)))
	combine("Inf row", [][]contract.BF16{{inf, inf}, {one, inf | sign}}, []float32{0.5, 0.5}, nil, "")
	for k := range 8 {
		rows, w := make([][]contract.BF16, k+1), make([]float32, k+1)
		for i := range rows {
			rows[i], w[i] = normals(g.r, 4, 1), g.r.Float32()
		}
		combine("random", rows, w, nil, "")
		combine("random", rows, w, normals(g.r, 4, 1), hex(float32(g.r.NormFloat64())))
	}
}

// routerGradients are the gradients of the logits (R10).
func (g *goldenList) routerGradients() {
	gradient := func(why string, w, dw []float32, ids []int32, p []float32, experts int) {
		in := object{"w": hexes(w), "dw": hexes(dw), "ids": ids, "p": "", "norm": p == nil, "experts": experts}
		if p != nil {
			in["p"] = hexes(p)
		}
		g.add("router_gradient", why, in)
	}
	gradient("c is a tree in slot order", []float32{0.25, 0.25, 0.25, 0.25}, []float32{4e8, 4, -4e8, 4}, []int32{3, 0, 2, 1}, nil, 4)
	gradient("c is a tree in slot order", []float32{0.25, 0.25, 0.25}, []float32{4e8, 4, -4e8}, []int32{2, 0, 1}, nil, 4)
	for n := range 6 {
		logits := make([]float32, 9)
		for e := range logits {
			logits[e] = float32(g.r.NormFloat64())
		}
		ids := contract.Select(logits, n+1)
		dw := make([]float32, len(ids))
		for k := range dw {
			dw[k] = float32(g.r.NormFloat64())
		}
		gradient("over the selected", contract.RouteWeights(logits, ids, true), dw, ids, nil, len(logits))
		gradient("dense", contract.RouteWeights(logits, ids, false), dw, ids, contract.Softmax(logits), len(logits))
	}
}

// folds are elements of weight gradients (R11).
func (g *goldenList) folds() {
	fold := func(why string, acc float32, a, b []contract.BF16) {
		g.add("fold", why, object{"acc": hex(acc), "a": hexes(a), "b": hexes(b)})
	}
	for _, rows := range []int{0, 1, 16, 17, 31, 32, 33, 64, 65, 100} {
		fold(fmt.Sprintf("%d rows", rows), float32(g.r.NormFloat64()), normals(g.r, rows, 1), normals(g.r, rows, 1))
	}
	fold("no rows keep -0", f32(0x80000000), nil, nil)
	fold("-0 and a row of +0", f32(0x80000000), repeated(0, 1), repeated(one, 1))
	large := append(repeated(power(20), 1), repeated(0, 31)...)
	fold("a segment begins at +0, not at the one before", 0, append(large, repeated(power(-4), 8)...), repeated(one, 40))
	fold("a segment begins at +0, not at the accumulator", 0x1p24, repeated(power(-2), 8), repeated(one, 8))
	fold("added to nearest even, not toward zero", 0x1p24, repeated(one, 3), repeated(one, 3))
	fold("256 then 1", 256, repeated(one, 1), repeated(one, 1))
	var parts []contract.BF16
	for _, v := range []float32{1e20, 1, -1e20, 1} {
		parts = append(append(parts, contract.Round(v)), repeated(0, 31)...)
	}
	fold("segments in ascending order", 0, parts, repeated(one, len(parts)))
	fold("Inf-Inf in the sum", float32(math.Inf(1)), repeated(inf|sign, 1), repeated(one, 1))
	fold("NaN row", 1, repeated(nan, 1), repeated(one, 1))
}
