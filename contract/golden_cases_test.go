// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"math/rand/v2"

	"github.com/samebit/samebit/contract"
)

// goldenCases are the inputs of golden.json. Random ones show the bulk; the others are chosen so that each plausible
// misreading of a rule fails somewhere. These misreadings were tried, one change of the code each, and these cases fail:
//
//	R0   round half away, truncate                tie to even; above a tie, into the next power
//	     a NaN's bits passed on, 7FC00000 in FP32 signalling NaN, NaN that would carry; Inf-Inf, Inf*0, NaN accumulator
//	R1   24 bits                                  2^-25 below M=0 counts; a product is not normalised
//	     26 bits                                  2^-26 below M=0 is cut; terms are cut one by one
//	     M at least -126, at least -149           but it is below -126; M is not below -133
//	     zero products, a zero accumulator set M  a zero product sets no scale, nor does -0; nor does a zero accumulator
//	     the accumulator sets no M                accumulator passes; terms are cut one by one
//	     products or subnormals normalised        a product is not normalised; a subnormal factor counts as 2^-126
//	     terms floored, the sum to nearest        M is not below -133; the sum is rounded toward zero
//	     -0, saturation, subnormals flushed       nonzero sum cut to zero is +0; 2^128 is Inf; subnormal products add
//	     groups of 8, one chain for segments      a logit
//	R3   ties to the larger id, +0 before -0      all equal, the 10th equals the 11th; -0 equals +0
//	R4   exp: (p*r)*r, r+1 first, fused           p*(r*r), not (p*r)*r; (p*r^2+r)+1; no fused multiply-add
//	     exp: n half away, floor(t+1/2)           n ties to even
//	     exp: x*log2(e) exact, ln2 in one part    x*log2(e) rounded to FP32 first; ln2 in two parts
//	     exp: 2^n in one factor, another end      2^128 needs two factors; ends of the range
//	     exp: subnormals flushed, the library's   2^-150 needs two factors; no fused multiply-add
//	     tree: a chain, halves, a butterfly       pairs, not a chain; the odd last is carried; pairs, not halves
//	     tree: backwards, the odd one at once     read from the front; the odd last is carried, two levels
//	     maximum left out, taken of the first     l - max overflows; replayed, not the largest
//	     times 1/sum, dense and renormalised      seven; selected, far apart
//	     summed by ascending id, NormTopK ignored replayed, in another slot order; K=1
//	R6   g*s, (g*u)*s, silu rounded to BF16       g/(1+e^-g), not g*s; silu(g)*u, not (g*u)/(1+e^-g); random
//	R7   slots backwards, a tree, shared first    slot order; slot order, then the shared row
//	     products or sums in BF16, fused          one cast at the end, random; products are not fused
//	     from the first product, not gated        the sum starts at +0; shared by sigmoid(z)
//	R8   other orders, another slope, fused       those that name it
//	     w after the cast, w left out             the order of dg's products; ends
//	R10  c: a chain, ascending ids, left out      c is a tree in slot order; over the selected, dense
//	     w*dw - w*c, zeros for the rest           over the selected; dense
//	R11  segments of 16, of 64                    32 rows; segments in ascending order
//	     begun at the accumulator                 a segment begins at +0, not at the accumulator
//	     a NaN's bits passed on                   Inf-Inf in the sum
//
// What spans operations is caught by other tests: dw, R9's stream and order, dz, bf16(h*w) by TestLayerVectors,
// TestInputRowStream and TestInputOrder; the length of a logit's segments by TestLogitSegments.
func goldenCases() []golden {
	g := &goldenList{r: rand.New(rand.NewPCG(4, 16))}
	g.products()
	g.functions()
	g.sums()
	g.activation()
	g.routing()
	g.combining()
	g.routerGradients()
	g.folds()
	return g.cases
}

type goldenList struct {
	cases []golden
	r     *rand.Rand
}

type object = map[string]any

func (g *goldenList) add(op, why string, in object) {
	g.cases = append(g.cases, golden{Op: op, Why: why, In: in})
}

// products are single steps of the tensor core and chains of them (R1, R2).
func (g *goldenList) products() {
	step := func(why string, acc float32, a, b []contract.BF16) {
		pad := make([]contract.BF16, 16-len(a))
		g.add("tc16", why, object{"acc": hex(acc), "a": hexes(append(a, pad...)), "b": hexes(append(b, pad...))})
	}
	for _, c := range tc16Rules {
		a, b := split(c.pairs)
		step(c.name, f32(c.acc), a, b)
	}
	for _, kind := range tc16Kinds {
		for range 4 {
			acc, a, b := kind.draw(g.r)
			step(kind.name, acc, a, b)
		}
	}
	dot := func(why string, a, b []contract.BF16, segment int) {
		g.add("tcdot", why, object{"a": hexes(a), "b": hexes(b), "segment": segment})
	}
	for _, k := range []int{1, 15, 16, 17, 33, 200} {
		dot("random", normals(g.r, k, 1), normals(g.r, k, 1), 0)
	}
	for _, k := range []int{1, 127, 128, 129, 256, 300} {
		dot("a logit", normals(g.r, k, 1), normals(g.r, k, 1), 128)
	}
	// A segment of 128 begins anew at +0: in one chain the small terms would be cut against the first.
	small := make([]contract.BF16, 136)
	small[0] = power(4)
	for i := 128; i < len(small); i++ {
		small[i] = power(-24)
	}
	ones := repeated(one, len(small))
	dot("small terms behind a large one, one chain", small, ones, 0)
	dot("small terms behind a large one, segments", small, ones, 128)
	// Segments are added in ascending order.
	parts := repeated(contract.BF16(0), 4*128)
	for i, v := range []float32{1e20, 1, -1e20, 1} {
		parts[i*128] = contract.Round(v)
	}
	dot("segments in ascending order", parts, repeated(one, len(parts)), 128)
}

// functions are the functions of one number: the cast, exp and sigmoid (R0, R4).
func (g *goldenList) functions() {
	for _, f := range []struct {
		why  string
		bits uint32
	}{
		{"zero", 0}, {"-0", 0x80000000}, {"tie to even, down", 0x3F808000}, {"tie to even, up", 0x3F818000}, {"below a tie", 0x3F807FFF},
		{"above a tie", 0x3F808001}, {"into the next power", 0x3FFFC000}, {"to Inf", 0x7F7F8000}, {"to -Inf", 0xFF7FFFFF},
		{"largest", 0x7F7F7FFF}, {"subnormal is kept", 0x00010000}, {"subnormal tie to zero", 0x00008000}, {"subnormal tie up", 0x80018000},
		{"to the least normal", 0x007FFFFF}, {"Inf", 0x7F800000}, {"-Inf", 0xFF800000}, {"signalling NaN", 0x7F800001},
		{"NaN with a sign", 0xFFC00000}, {"NaN that would carry to -0", 0x7FFFFFFF}, {"-NaN that would carry to +0", 0xFFFFFFFF},
	} {
		g.add("round", f.why, object{"f": hex(f32(f.bits))})
	}
	for _, x := range []struct {
		why  string
		bits []uint32
	}{
		{"ends of the range", []uint32{expLast, expLast + 1, expFirst, expFirst + 1, 0x7F800000, 0xFF800000, 0x7F7FFFFF}},
		{"NaN", []uint32{0x7FC00000, 0xFF800001}},
		{"one", []uint32{0, 0x80000000, 1}},
		{"2^128 needs two factors", []uint32{0x42B10000, 0x42B17217, 0x42B16000}},
		{"2^-150 needs two factors; subnormal results", []uint32{0xC2CFF1B4, 0xC2CFF000, 0xC2CE8ED0, 0xC2CC0000, 0xC2B00000, 0xC2AEAC50}},
		{"p*(r*r), not (p*r)*r", []uint32{0x41932861, 0x42035660, 0x41D66A35, 0x404B843A}},
		{"ln2 in two parts", []uint32{0xC11DF9F8, 0x41552D2E, 0x41B303DD}},
		{"no fused multiply-add", []uint32{0x40EA6CCB, 0xC156C1A9, 0x41E0F4E3, 0x40D8DCA7, 0xC288425F, 0x420C78D1, 0x41CE0C8F, 0xC20DF22D}},
		{"(p*r^2+r)+1, not p*r^2+(r+1)", []uint32{0x40C40BEA, 0xC0CD99F8, 0xC1ABD30B, 0x405CFB76}},
		{"n ties to even", []uint32{0xC24377AE, 0x4192F27C, 0x41A920BF, 0x41D57D45, 0xC23B2656, 0x40E8E5BF}},
		{"x*log2(e) rounded to FP32 first", []uint32{0x4192F27C, 0xC2490340, 0x40D2B77C, 0x4158430D}},
	} {
		for _, bits := range x.bits {
			g.add("exp", x.why, object{"x": hex(f32(bits))})
		}
	}
	for range 16 {
		g.add("exp", "random", object{"x": hex(float32(g.r.NormFloat64() * 8))})
		g.add("sigmoid", "random", object{"x": hex(float32(g.r.NormFloat64() * 4))})
	}
	for _, x := range []float32{0, -88, 88, -88.8, -89, -104, 104} {
		g.add("sigmoid", "ends", object{"x": hex(x)})
	}
}

// sums are trees (R4).
func (g *goldenList) sums() {
	tree := func(why string, v ...float32) { g.add("tree", why, object{"v": hexes(v)}) }
	tree("pairs, not a chain", 1, 1e8, -1e8, 1)
	tree("pairs, not halves", 1, 1e8, 1, -1e8)
	tree("the odd last is carried, to the end", 1e8, 1, -1e8, 1, 1)
	tree("the odd last is carried, two levels", 1e8, 3, 1, -1e8, 1, 1, 1)
	tree("read from the front", 1e8, -1e8, 1)
	tree("read from the front", 1, 1e8, -1e8)
	tree("-0", f32(0x80000000), f32(0x80000000))
	tree("one", f32(0x80000000))
	tree("Inf", f32(0x7F7FFFFF), f32(0x7F7FFFFF), -1)
	for _, n := range []int{2, 3, 5, 7, 10, 13, 64, 100} {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(g.r.NormFloat64())
		}
		tree("random", v...)
	}
}

// repeated is v, n times.
func repeated(v contract.BF16, n int) []contract.BF16 {
	s := make([]contract.BF16, n)
	for i := range s {
		s[i] = v
	}
	return s
}
