// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package elements

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/samebit/samebit/contract"
)

var exhaustive = flag.Bool("exhaustive", false, "take all 2^32 inputs of exp and the cast")

func eachElements(t *testing.T, do func(t *testing.T, e *Set)) {
	for _, e := range Sets() {
		t.Run(e.Name, func(t *testing.T) { do(t, e) })
	}
}

// special are where the steps of exp, the cast and the sums change their ways.
var special = []uint32{
	0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0x7FBFFFFF,
	0x3F800000, 0x3F7FFFFF, 0x42B17217, 0x42B17218, 0x42B17216, 0x42CFF1B4, 0x42CFF1B5, 0x42CFF1B3, 0x43000000,
	0x43000001, 0x42FFFFFF, 0x42AEAC50, 0x7F7F7FFF, 0x7F7F8000, 0x3F808000, 0x3F818000, 0x00008000, 0x00018000, 0x00007FFF,
	0x33000000, 0x33800000, 0x4B000000, 0x3F317218, 0x3EB17218, 0x5F000000, 0x1F800000,
}

// fillFP32 draws FP32 from all bit patterns, from ordinary values and from the special ones.
func fillFP32(r *rand.Rand, v []float32) []float32 {
	for i := range v {
		b := r.Uint32()
		switch r.IntN(8) {
		case 0:
			b = special[r.IntN(len(special))] ^ b&0x80000000
		case 1, 2:
			b = math.Float32bits(float32(r.NormFloat64() * 4))
		case 3:
			b = math.Float32bits(float32(r.NormFloat64() * 60))
		case 4:
			b &= 0x81FFFFFF // near and below the least normal number
		case 5:
			b &= 0xFFFF0000
		}
		v[i] = math.Float32frombits(b)
	}
	return v
}

func fillBF16(r *rand.Rand, v []contract.BF16) []contract.BF16 {
	f := fillFP32(r, make([]float32, len(v)))
	for i := range v {
		v[i] = contract.BF16(math.Float32bits(f[i]) >> 16)
	}
	return v
}

// floats and bfloats are n elements that start off an alignment, of poison that a kernel must overwrite.
func floats(r *rand.Rand, n int) []float32 {
	v := make([]float32, n+16)
	for i := range v {
		v[i] = math.Float32frombits(0xFFBADBAD)
	}
	from := r.IntN(16)
	return v[from : from+n : from+n]
}

func bfloats(r *rand.Rand, n int) []contract.BF16 {
	v := make([]contract.BF16, n+32)
	for i := range v {
		v[i] = 0xFFBA
	}
	from := r.IntN(32)
	return v[from : from+n : from+n]
}

func same16(t *testing.T, what string, got, want []contract.BF16, at func(i int) string) {
	t.Helper()
	different, first := 0, 0
	for i := range want {
		if got[i] != want[i] {
			if different++; different == 1 {
				first = i
			}
		}
	}
	if different > 0 {
		t.Fatalf("%s: %d of %d differ, first [%d]: %04x, want %04x; %s", what, different, len(want), first, got[first], want[first], at(first))
	}
}

// same32 takes any NaN for any other if loose: one that stays inside the layer has no named bits.
func same32(t *testing.T, what string, got, want []float32, loose bool, at func(i int) string) {
	t.Helper()
	different, first := 0, 0
	for i := range want {
		g, w := got[i], want[i]
		if math.Float32bits(g) != math.Float32bits(w) && !(loose && g != g && w != w) {
			if different++; different == 1 {
				first = i
			}
		}
	}
	if different > 0 {
		t.Fatalf("%s: %d of %d differ, first [%d]: %08x, want %08x; %s", what, different, len(want), first,
			math.Float32bits(got[first]), math.Float32bits(want[first]), at(first))
	}
}

func hex(v ...float32) string {
	s := ""
	for _, v := range v {
		s += fmt.Sprintf(" %08x", math.Float32bits(v))
	}
	return s
}

func checkSwiglu(t *testing.T, e *Set, r *rand.Rand, g, u []float32) {
	t.Helper()
	n := len(g)
	got, want := bfloats(r, n), make([]contract.BF16, n)
	e.SwiGLU(got, g, u)
	for i := range want {
		want[i] = contract.SwiGLU(g[i], u[i])
	}
	same16(t, "h", got, want, func(i int) string { return hex(g[i], u[i]) })
}

func checkBackward(t *testing.T, e *Set, r *rand.Rand, g, u, q []float32, w float32) {
	t.Helper()
	n := len(g)
	dg, du, hw, terms := bfloats(r, n), bfloats(r, n), bfloats(r, n), floats(r, n)
	e.SwiGLUBackward(dg, du, hw, terms, g, u, q, w)
	wdg, wdu, whw, wterms := make([]contract.BF16, n), make([]contract.BF16, n), make([]contract.BF16, n), make([]float32, n)
	for i := range g {
		h := contract.SwiGLU(g[i], u[i]).Float32()
		wterms[i] = float32(q[i] * h)
		whw[i] = contract.Round(h * w)
		wdg[i], wdu[i] = contract.SwiGLUBackward(g[i], u[i], q[i], w)
	}
	at := func(i int) string { return hex(g[i], u[i], q[i], w) }
	same16(t, "dg", dg, wdg, at)
	same16(t, "du", du, wdu, at)
	same16(t, "hw", hw, whw, at)
	same32(t, "terms", terms, wterms, true, at)
}

// TestGates: all BF16 gates, each with several ups.
func TestGates(t *testing.T) {
	eachElements(t, func(t *testing.T, e *Set) {
		r := rand.New(rand.NewPCG(1, 2))
		g, u, q := make([]float32, 1<<16), make([]float32, 1<<16), make([]float32, 1<<16)
		for i := range g {
			g[i] = contract.BF16(i).Float32()
		}
		for round := range 12 {
			fillFP32(r, q)
			if fillFP32(r, u); round < 4 {
				for i := range u {
					u[i] = math.Float32frombits([]uint32{0x3F800000, 0xBF800001, 0x7F7FFFFF, 0x00400000}[round])
				}
			}
			checkSwiglu(t, e, r, g, u)
			checkBackward(t, e, r, g, u, q, []float32{1, 0.1, 0.4375, 1e-38, -3e38, float32(math.NaN())}[round%6])
		}
	})
}

// TestElements: random bits, at every length with a tail and off every alignment.
func TestElements(t *testing.T) {
	eachElements(t, func(t *testing.T, e *Set) {
		r := rand.New(rand.NewPCG(3, 4))
		lengths := []int{512, 769, 2048, 4096}
		for n := range 131 {
			lengths = append(lengths, n)
		}
		for round := range 40 {
			for _, n := range lengths {
				g, u, q := fillFP32(r, floats(r, n)), fillFP32(r, floats(r, n)), fillFP32(r, floats(r, n))
				by := fillFP32(r, make([]float32, 1))[0]
				checkSwiglu(t, e, r, g, u)
				checkBackward(t, e, r, g, u, q, by)

				v := fillBF16(r, bfloats(r, n))
				at := func(i int) string { return hex(g[i], by, v[i].Float32()) }
				got, want := append(floats(r, 0), g...), append([]float32(nil), g...)
				e.FoldRouter(got, by, v)
				contract.FoldRouter(want, by, v)
				same32(t, "foldRouter", got, want, false, at)
				got = append(floats(r, 0), g...)
				e.AddScaled(got, by, v)
				same32(t, "addScaled", got, want, true, at)
				copy(got, g)
				e.AddScaled(got, 1, v)
				for i := range want {
					want[i] = g[i] + v[i].Float32()
				}
				same32(t, "addScaled by 1", got, want, true, at)

				got16, want16 := bfloats(r, n), make([]contract.BF16, n)
				e.Round(got16, g)
				for i := range want16 {
					want16[i] = contract.Round(g[i])
				}
				same16(t, "round", got16, want16, at)

				got = floats(r, n)
				for _, by := range []float32{by, 0, 1.5} {
					e.ExpShift(got, g, by)
					for i := range want {
						want[i] = contract.Exp(g[i] - by)
					}
					same32(t, "expShift", got, want, false, at)
				}
				if round%8 == 0 {
					checkNeighbours(t, e, n)
				}
			}
		}
	})
}

// checkNeighbours: nothing is written before or behind n elements.
func checkNeighbours(t *testing.T, e *Set, n int) {
	t.Helper()
	const pad = 64
	f, h := make([][]float32, 4), make([][]contract.BF16, 3)
	in := make([]float32, n)
	fs := func(i int) []float32 {
		f[i] = make([]float32, n+2*pad)
		return f[i][pad : pad+n : pad+n]
	}
	hs := func(i int) []contract.BF16 {
		h[i] = make([]contract.BF16, n+2*pad)
		for j := range h[i] {
			h[i][j] = 0x1234
		}
		return h[i][pad : pad+n : pad+n]
	}
	check := func(what string) {
		t.Helper()
		for _, f := range f {
			for j := range f {
				if (j < pad || j >= pad+n) && f[j] != 0 {
					t.Fatalf("%s of %d writes at %d", what, n, j-pad)
				}
			}
		}
		for _, h := range h {
			for j := range h {
				if (j < pad || j >= pad+n) && h[j] != 0x1234 {
					t.Fatalf("%s of %d writes at %d", what, n, j-pad)
				}
			}
		}
	}
	ones := make([]contract.BF16, n)
	e.SwiGLU(hs(0), in, in)
	e.SwiGLUBackward(hs(1), hs(2), hs(0), fs(0), in, in, in, 1)
	check("swiglu")
	e.AddScaled(fs(1), 1, ones)
	e.FoldRouter(fs(2), 1, ones)
	e.ExpShift(fs(3), in, 1)
	e.Round(hs(0), in)
	check("sums")
}

// TestExp walks the inputs of exp and of the cast by a stride, or takes all of them.
func TestExp(t *testing.T) {
	step := uint64(9973)
	if *exhaustive {
		step = 1
	}
	const block = 1 << 12
	in, got, want := make([]float32, block), make([]float32, block), make([]float32, block)
	got16, want16 := make([]contract.BF16, block), make([]contract.BF16, block)
	for b := uint64(0); b < 1<<32; b += step * block {
		for i := range in {
			in[i] = math.Float32frombits(uint32(b + uint64(i)*step))
			want[i], want16[i] = contract.Exp(in[i]), contract.Round(in[i])
		}
		at := func(i int) string { return hex(in[i]) }
		for _, e := range Sets() {
			e.ExpShift(got, in, 0)
			same32(t, e.Name+" exp", got, want, false, at)
			e.Round(got16, in)
			same16(t, e.Name+" cast", got16, want16, at)
		}
	}
}

func TestTree(t *testing.T) {
	eachElements(t, func(t *testing.T, e *Set) {
		r := rand.New(rand.NewPCG(5, 6))
		for n := range 1700 {
			for kind := range 3 {
				v := floats(r, n)
				for i := range v {
					v[i] = float32(r.NormFloat64() * math.Exp(r.NormFloat64()*5))
					if kind == 1 {
						v[i] = math.Float32frombits(r.Uint32() & 0x81FFFFFF)
					}
				}
				if kind == 2 {
					fillFP32(r, v)
				}
				before := append([]float32(nil), v...)
				same32(t, fmt.Sprint("tree of ", n), []float32{e.Tree(v)}, []float32{contract.Tree(v)}, true, func(int) string { return "" })
				same32(t, "tree's input", v, before, false, func(int) string { return "" })
			}
		}
		v := make([]float32, 1<<16+77)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		for _, n := range []int{2048, 4096, 4097, 8191, 1 << 16, len(v)} {
			same32(t, "tree", []float32{e.Tree(v[:n])}, []float32{contract.Tree(v[:n])}, true, func(int) string { return "" })
		}
		if a := testing.AllocsPerRun(10, func() { e.Tree(v) }); a > 0 {
			t.Errorf("tree allocates %v times", a)
		}
	})
}

func TestSelect(t *testing.T) {
	eachElements(t, func(t *testing.T, e *Set) {
		r := rand.New(rand.NewPCG(7, 8))
		for round := range 6000 {
			n := 1 + r.IntN(200)
			switch round % 4 {
			case 0:
				n = 512
			case 1:
				n = 1 + r.IntN(2500)
			}
			logits := floats(r, n)
			levels := []float64{1e9, 3, 1, 0.1, 20}[r.IntN(5)]
			for i := range logits {
				logits[i] = float32(math.Round(r.NormFloat64()*levels) / levels)
				if r.IntN(4) == 0 && logits[i] == 0 {
					logits[i] = float32(math.Copysign(0, -1))
				}
				if levels == 20 {
					logits[i] = float32(i % (1 + round%90) * (round%3 - 1)) // in runs, up or down
				}
				if round%50 == 7 {
					logits[i] = math.Float32frombits(r.Uint32() &^ (1 << (23 + r.IntN(8)))) // any finite
				}
			}
			k := 1 + r.IntN(min(n, 20))
			got, want := make([]int32, k), contract.Select(logits, k)
			e.SelectTop(got, logits)
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("%d of %d: %v, want %v", k, n, got, want)
				}
			}
		}
	})
}

func TestScans(t *testing.T) {
	eachElements(t, func(t *testing.T, e *Set) {
		r := rand.New(rand.NewPCG(9, 10))
		for n := range 300 {
			v := bfloats(r, n)
			for i := range v {
				v[i] = contract.BF16(r.IntN(2) << 15)
			}
			if !e.AllZero(v) {
				t.Fatalf("%d zeros are not", n)
			}
			for i := range v {
				v[i] |= 1
				if e.AllZero(v) {
					t.Fatalf("%d with [%d] = %04x are zero", n, i, v[i])
				}
				v[i] &^= 1
			}
			for i := range v {
				v[i] = contract.BF16(r.Uint32())
				if !v[i].Finite() {
					v[i] ^= 0x0080
				}
			}
			if at := e.NonFinite(v); at != -1 {
				t.Fatalf("%d finite: %d, want -1", n, at)
			}
			for i := n - 1; i >= 0; i-- {
				was := v[i]
				v[i] = contract.BF16(0x7F80 | r.Uint32()&0x807F)
				if at := e.NonFinite(v); at != i {
					t.Fatalf("%d finite but [%d] = %04x: %d", n, i, v[i], at)
				}
				if r.IntN(2) == 0 {
					v[i] = was
				}
				for j := i; j < n; j++ { // one that comes later does not matter
					if !v[j].Finite() && r.IntN(4) == 0 {
						v[j] = 0
					}
				}
				for j := i; j < n; j++ {
					if !v[j].Finite() {
						if at := e.NonFinite(v); at != j {
							t.Fatalf("first of several at %d: %d", j, at)
						}
						break
					}
				}
			}
		}
	})
}
