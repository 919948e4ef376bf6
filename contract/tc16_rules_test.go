// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/samebit/samebit/contract"
)

// TestTC16Order: the order of the pairs inside a group, the order of the two factors and pairs of zero change nothing.
func TestTC16Order(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 16))
	for _, kind := range tc16Kinds {
		var got, want []float32
		for range 1000 {
			acc, a, b := kind.draw(r)
			clear(a[12:])
			first := contract.TC16(acc, a, b)
			for range 4 {
				r.Shuffle(len(a), func(i, j int) { a[i], a[j], b[i], b[j] = a[j], a[i], b[j], b[i] })
				a, b = b, a
				got, want = append(got, contract.TC16(acc, a, b)), append(want, first)
			}
			var shortA, shortB []contract.BF16
			for i := range a {
				if !a[i].Zero() && !b[i].Zero() {
					shortA, shortB = append(shortA, a[i]), append(shortB, b[i])
				}
			}
			got, want = append(got, contract.TC16(acc, shortA, shortB)), append(want, first)
		}
		sameBits(t, kind.name, 1, got, want)
	}
}

// pair is one product of a step.
type pair struct{ a, b contract.BF16 }

const (
	inf  contract.BF16 = 0x7F80
	nan  contract.BF16 = 0x7FC0
	sign contract.BF16 = 0x8000
	one  contract.BF16 = 0x3F80
)

// tc16Rules are single steps, each the smallest that tells R1 from one plausible misreading.
var tc16Rules = []struct {
	name  string
	acc   uint32
	pairs []pair
	want  uint32
}{
	{"nothing", 0, nil, 0},
	{"accumulator passes", 0x3F800001, nil, 0x3F800001},
	{"subnormal accumulator passes", 0x80000001, nil, 0x80000001},
	{"zero is +0: -0 accumulator", 0x80000000, nil, 0},
	{"zero is +0: -0 products", 0x80000000, []pair{{sign, one}, {one, sign}}, 0},
	{"zero is +0: 1-1", 0x3F800000, []pair{{one | sign, one}}, 0},
	{"nonzero sum cut to zero is +0", 0, []pair{{power(-75) | sign, power(-76)}}, 0},

	{"2^-26 below M=0 is cut", 0x3F800000, []pair{{power(-13) | sign, power(-13)}}, 0x3F800000},
	{"2^-25 below M=0 counts", 0x3F800000, []pair{{power(-12) | sign, power(-13)}}, 0x3F7FFFFF},
	{"terms are cut one by one", 0x3F800000, repeat(pair{power(-13), power(-13)}, 16), 0x3F800000},
	{"terms of 2^-25 add up", 0x3F800000, repeat(pair{power(-12), power(-13)}, 16), 0x3F800004},
	{"the sum is rounded toward zero", 0x3F800000, repeat(pair{power(-12), power(-13)}, 3), 0x3F800000},
	{"and so is a negative one", 0xBF800000, repeat(pair{power(-12) | sign, power(-13)}, 3), 0xBF800000},
	{"the accumulator is cut too", 0x3F800001, []pair{{power(2), power(2)}, {power(2) | sign, power(2)}}, 0x3F800000},
	{"a product is not normalised", 0x33000000, []pair{{0x3FC0, 0x3FC0}, {0x3FC0 | sign, 0x3FC0}}, 0x33000000},
	{"a zero product sets no scale", 0, []pair{{0, power(127)}, {power(-15), power(-15)}}, 0x30800000},
	{"nor does -0", 0, []pair{{power(127), sign}, {power(-15), power(-15)}}, 0x30800000},
	{"nor does a zero accumulator", 0x80000000, []pair{{power(-66), power(-66)}, {power(-75), power(-74)}, {power(-77) | sign, power(-78)}}, 0x00020000},
	{"a subnormal factor counts as 2^-126", 0, []pair{{0x0001, power(100)}, {power(-26), power(-26)}}, 0x2F000000},
	{"subnormal products add", 0, repeat(pair{power(-75), power(-76)}, 4), 0x00000001},
	{"M is not below -133", 0, []pair{{power(-74), power(-75)}, {power(-79) | sign, power(-80)}}, 0x00000001},
	{"but it is below -126", 0, []pair{{power(-74), power(-75)}, {power(-77) | sign, power(-78)}}, 0},

	{"2^128 is Inf", 0, []pair{{power(127), power(1)}}, 0x7F800000},
	{"-2^128 is -Inf", 0, []pair{{power(127), power(1) | sign}}, 0xFF800000},
	{"below 2^128 is the largest number", 0x7F7FFFFF, []pair{{power(102), power(0)}}, 0x7F7FFFFF},
	{"2^127 twice", 0x7F000000, []pair{{power(127), one}}, 0x7F800000},
	{"overflow is judged after the sum", 0xFF000000, []pair{{power(127), power(1)}}, 0x7F000000},
	{"far beyond range and back", 0x3F800000, []pair{{power(127), power(127)}, {power(127), power(127) | sign}}, 0},

	{"Inf propagates", 0x3F800000, []pair{{inf, one}, {power(127), power(127) | sign}}, 0x7F800000},
	{"Inf times negative", 0, []pair{{inf, one | sign}}, 0xFF800000},
	{"Inf accumulator", 0xFF800000, []pair{{power(127), power(127)}}, 0xFF800000},
	{"Inf-Inf", 0, []pair{{inf, one}, {inf | sign, one}}, 0x7FFFFFFF},
	{"Inf accumulator - Inf", 0x7F800000, []pair{{inf, one | sign}}, 0x7FFFFFFF},
	{"Inf*0", 0, []pair{{inf, 0}}, 0x7FFFFFFF},
	{"0*-Inf", 0, []pair{{sign, inf | sign}}, 0x7FFFFFFF},
	{"NaN", 0x3F800000, []pair{{nan, one}}, 0x7FFFFFFF},
	{"NaN*0", 0, []pair{{0, 0xFF81}}, 0x7FFFFFFF},
	{"NaN accumulator", 0xFFC00001, nil, 0x7FFFFFFF},
	{"NaN over Inf", 0x7F800000, []pair{{inf, one}, {one, 0x7F81}}, 0x7FFFFFFF},
}

func repeat(p pair, n int) []pair {
	v := make([]pair, n)
	for i := range v {
		v[i] = p
	}
	return v
}

func split(pairs []pair) (a, b []contract.BF16) {
	for _, p := range pairs {
		a, b = append(a, p.a), append(b, p.b)
	}
	return a, b
}

func TestTC16Rules(t *testing.T) {
	for _, c := range tc16Rules {
		a, b := split(c.pairs)
		same(t, c.name, contract.TC16(f32(c.acc), a, b), f32(c.want))
		a = append(a, make([]contract.BF16, 16-len(a))...)
		b = append(b, make([]contract.BF16, 16-len(b))...)
		same(t, c.name+", padded", contract.TC16(f32(c.acc), a, b), f32(c.want))
	}
}

// TestTCDot ties the walk over K to single steps: groups of 16 ascending, and segments that each start at +0 (R1).
func TestTCDot(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 16))
	for k := range 140 {
		a, b := normals(r, k, 1), normals(r, k, 1)
		chain := func(a, b []contract.BF16) float32 {
			var acc float32
			for s := 0; s < len(a); s += 16 {
				end := min(s+16, len(a))
				acc = contract.TC16(acc, a[s:end], b[s:end])
			}
			return acc
		}
		same(t, fmt.Sprintf("K=%d", k), contract.TCDot(a, b), chain(a, b))
		for _, segment := range []int{16, 32, 128} {
			var sum float32
			for s := 0; s < k; s += segment {
				end := min(s+segment, k)
				sum += chain(a[s:end], b[s:end])
			}
			same(t, fmt.Sprintf("K=%d in segments of %d", k, segment), contract.TCDotSegments(a, b, segment), sum)
		}
	}
	huge := []contract.BF16{inf, inf | sign}
	same(t, "Inf-Inf across segments", contract.TCDotSegments(huge, []contract.BF16{one, one}, 1), f32(0x7FFFFFFF))
}
