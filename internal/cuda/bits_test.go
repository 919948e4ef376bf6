// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/contract/testdata"
	"github.com/samebit/samebit/internal/cuda/driver"
	"github.com/samebit/samebit/internal/cuda/image"
	"github.com/samebit/samebit/internal/testgen"
)

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// loud are weights larger than a model's, so that a small shape's experts do not all but vanish.
func loud(s contract.Shape, seed uint64) *contract.Weights {
	w := testgen.Weights(s, seed)
	louder := func(v []contract.BF16) {
		for i := range v {
			v[i] = contract.Round(v[i].Float32() * 8)
		}
	}
	louder(w.Router)
	louder(w.SharedGate)
	for e := range w.Experts {
		louder(w.Experts[e].Gate)
		louder(w.Experts[e].Up)
		louder(w.Experts[e].Down)
	}
	if w.Shared != nil {
		louder(w.Shared.Gate)
		louder(w.Shared.Up)
		louder(w.Shared.Down)
	}
	return &w
}

// exponents gives v exponents of a range, from the first on so many, and a zero now and then.
func exponents(r *rand.Rand, v []contract.BF16, within [2]int) {
	for i := range v {
		v[i] = v[i]&0x807F | contract.BF16(within[0]+r.IntN(within[1]))<<7
		if r.IntN(50) == 0 {
			v[i] &= 0x8000
		}
	}
}

var tinyShape = contract.Shape{Hidden: 128, Experts: 16, TopK: 4, Width: 48, SharedWidth: 64, NormTopK: true}

// Every gate that takes the branchless way gives the contract's SiLU, and every one that is approximated is as near as that needs:
// all of them, on the GPU.
func TestSilu(t *testing.T) {
	b := openGPU(t)
	counts, err := b.Alloc(backend.I32, 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Zero(counts); err != nil {
		t.Fatal(err)
	}
	p := &siluParams{different: i32(counts)}
	err = b.gpu.Launch(driver.Launch{Kernel: b.kernels[image.NumbersSiluF32], Name: "numbers_silu_f32", Grid: [3]int{16 * b.gpu.Processors}, Block: 256},
		unsafe.Pointer(p), b.stream)
	if err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, 16)
	if err := b.Read(raw, counts); err != nil {
		t.Fatal(err)
	}
	if n := binary.LittleEndian.Uint64(raw); n != 0 {
		t.Errorf("%d gates differ, the last %08X", n, binary.LittleEndian.Uint64(raw[8:]))
	}
}

// The hardware results that the contract was made from come again, chain by chain.
func TestHardwareVectors(t *testing.T) {
	b := openGPU(t)
	path := filepath.Join(t.TempDir(), testdata.H200Name)
	if err := os.WriteFile(path, testdata.H200, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	bf16s := func(name string) []contract.BF16 {
		v, _ := f.Tensor(name)
		m, err := v.BF16()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	f32s := func(name string) []float32 {
		v, _ := f.Tensor(name)
		m, err := v.F32()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	total := 0
	for _, name := range f.Names() {
		kind, is := strings.CutSuffix(name, ".d")
		if !is {
			continue
		}
		a, w, c, d := bf16s(kind+".a"), bf16s(kind+".b"), f32s(kind+".c"), f32s(name)
		k := len(a) / knownRows
		wide := func(m []contract.BF16) []contract.BF16 { // zeros up to a multiple of 64 terms
			pitch := ceil(k, 64) * 64
			v := make([]contract.BF16, len(m)/k*pitch)
			for i := range len(m) / k {
				copy(v[i*pitch:], m[i*k:(i+1)*k])
			}
			return v
		}
		for _, turned := range []bool{false, true} {
			have, err := b.tc16(wide(a), wide(w), c, ceil(k, 64)*64, turned)
			if err != nil {
				t.Fatal(err)
			}
			ok := true
			equal(t, &ok, fmt.Sprintf("tensor cores, turned %t", turned), kind, knownColumns, have, d)
		}
		total += len(d)
	}
	if total != 33792 {
		t.Errorf("%d results compared, want 33792", total)
	}
}

// Shapes of every kind, with both logits, one tape and one without.
func TestShapes(t *testing.T) {
	b := openGPU(t)
	for i, s := range []contract.Shape{
		tinyShape,
		{Hidden: 128, Experts: 16, TopK: 4, Width: 64, SharedWidth: 48, NormTopK: false},
		{Hidden: 64, Experts: 16, TopK: 1, Width: 48, NormTopK: true},
		{Hidden: 160, Experts: 8, TopK: 8, Width: 48, SharedWidth: 80, NormTopK: true},
		{Hidden: 33, Experts: 24, TopK: 10, Width: 17, SharedWidth: 7, NormTopK: false},
		{Hidden: 16, Experts: 512, TopK: 10, Width: 16, SharedWidth: 16, NormTopK: true},
		{Hidden: 8, Experts: 512, TopK: 512, Width: 3, NormTopK: false},
		{Hidden: 8, Experts: 600, TopK: 40, Width: 8, NormTopK: true},
		{Hidden: 1, Experts: 1, TopK: 1, Width: 1, SharedWidth: 1, NormTopK: true},
		{Hidden: 300, Experts: 5, TopK: 3, Width: 130, SharedWidth: 33, NormTopK: false},
		{Hidden: 1024, Experts: 32, TopK: 6, Width: 200, SharedWidth: 328, NormTopK: true},
		{Hidden: 96, Experts: 6, TopK: 2, Width: 30, SharedWidth: 13, NormTopK: true}, // padded, multiples of 16
	} {
		p := newPair(t, b, s, loud(s, uint64(i)), i%2 == 1)
		for _, n := range []int{0, 1, 9, 70, 300} {
			p.check(fmt.Sprintf("%+v, %d tokens", s, n), testgen.Tokens(n, s.Hidden, uint64(n)), nil, n%2 == 0)
		}
		for _, train := range []bool{false, true} {
			p.everyTiling(fmt.Sprintf("%+v", s), testgen.Tokens(190, s.Hidden, 7), train)
		}
	}
}

// Tokens of zeros, whose gates no approximation settles, among others: some few in a tile, and more than are put aside.
func TestZerosAmong(t *testing.T) {
	b := openGPU(t)
	for _, s := range []contract.Shape{
		{Hidden: 64, Experts: 1, TopK: 1, Width: 64, SharedWidth: 40},
		{Hidden: 48, Experts: 1, TopK: 1, Width: 24},
	} {
		p := newPair(t, b, s, loud(s, 3), false)
		for zeros := range 9 {
			for _, step := range []int{1, 2, 8, 17} {
				x := testgen.Tokens(180, s.Hidden, 4)
				for i := range zeros {
					clear(x[i*step*s.Hidden:][:s.Hidden])
				}
				for _, train := range []bool{false, true} {
					p.everyTiling(fmt.Sprintf("%+v, %d tokens of zeros, every %d", s, zeros, step), x, train)
				}
			}
		}
	}
}

// Every count of tokens from 0 to 130, and where others switch kernels, with every tiling.
func TestCounts(t *testing.T) {
	b := openGPU(t)
	p := newPair(t, b, tinyShape, loud(tinyShape, 5), false)
	counts := []int{255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 4095, 4096, 4097}
	for n := range 131 {
		counts = append(counts, n)
	}
	x := testgen.Tokens(4097, tinyShape.Hidden, 6)
	for _, n := range counts {
		if !p.everyTiling(fmt.Sprintf("%d tokens", n), x[:n*tinyShape.Hidden], true) {
			return
		}
	}
}

// Numbers over the whole range of BF16: subnormals, overflow, infinities and NaN in the tokens included.
func TestNumbers(t *testing.T) {
	b := openGPU(t)
	r := seeded(41)
	s := contract.Shape{Hidden: 96, Experts: 8, TopK: 3, Width: 72, SharedWidth: 40, NormTopK: true}
	for name, c := range map[string][2][2]int{
		"every exponent":    {{1, 253}, {1, 254}},
		"tiny":              {{0, 40}, {60, 30}},
		"subnormal weights": {{0, 1}, {120, 16}},
		"huge":              {{127, 40}, {180, 60}},
		"overflow":          {{127, 4}, {127, 4}},
		"wide":              {{100, 54}, {100, 54}},
		"cancelling":        {{126, 2}, {126, 1}},
		"steep gates":       {{124, 8}, {124, 8}},
	} {
		w := loud(s, 42)
		for e := range w.Experts {
			exponents(r, w.Experts[e].Gate, c[0])
			exponents(r, w.Experts[e].Up, c[0])
			exponents(r, w.Experts[e].Down, c[0])
		}
		p := newPair(t, b, s, w, false)
		x := testgen.Tokens(150, s.Hidden, 43)
		exponents(r, x, c[1])
		p.check(name, x, nil, true)
		p.check(name+", without a tape", x, nil, false)
		if name == "overflow" {
			clear(w.Router) // so that tokens of infinities live where they meet no weight
			for i := range 30 {
				x[r.IntN(len(x))] = []contract.BF16{0x7F80, 0xFF80, 0x7FC1}[i%3]
			}
			newPair(t, b, s, w, false).check("infinities and NaN", x, nil, true)
		}
	}
}

// Ties, extremes, tokens that are not finite, replay.
func TestRouting(t *testing.T) {
	b := openGPU(t)
	inf := float32(math.Inf(1))
	for _, norm := range []bool{true, false} {
		for _, experts := range []int{12, 512, 600} {
			s := contract.Shape{Hidden: experts + 8, Experts: experts, TopK: 10, Width: 16, SharedWidth: 24, NormTopK: norm}
			w := loud(s, 7)
			clear(w.Router) // the logits are the token's first values
			for e := range experts {
				w.Router[e*s.Hidden+e] = 0x3F80
			}
			rows := [][]float32{
				slices.Repeat([]float32{0}, experts), slices.Repeat([]float32{1.5}, experts),
				append([]float32{3, 2}, slices.Repeat([]float32{1}, experts-2)...),
				append(slices.Repeat([]float32{1}, experts-1), 1.0078125),
				slices.Repeat([]float32{1e38}, experts), append(slices.Repeat([]float32{-3e38}, experts-1), 3e38),
				append([]float32{0, float32(math.Copysign(0, -1)), 0, float32(math.Copysign(0, -1))}, slices.Repeat([]float32{-1}, experts-4)...),
				slices.Repeat([]float32{float32(math.NaN())}, experts), append(slices.Repeat([]float32{1}, experts-1), inf),
				append([]float32{-inf}, slices.Repeat([]float32{1}, experts-1)...), slices.Repeat([]float32{-1e-40}, experts),
			}
			for _, n := range []int{13, 301} {
				x := testgen.Tokens(n, s.Hidden, 3)
				for t, l := range rows {
					for e, v := range l {
						x[t*s.Hidden+e] = contract.Round(v)
					}
				}
				r := seeded(13)
				var replay []int32
				for i := range n {
					perm := r.Perm(experts)
					for k := range s.TopK {
						if i == 0 || i == 5 || i == n-1 {
							perm[k] = -1
						}
						replay = append(replay, int32(perm[k]))
					}
				}
				p := newPair(t, b, s, w, norm)
				p.check(fmt.Sprintf("%d experts, norm %t, %d tokens", experts, norm, n), x, nil, false)
				p.check(fmt.Sprintf("%d experts, norm %t, %d tokens, replayed", experts, norm, n), x, replay, false)
			}
		}
	}
}

// Every token to the same experts; all to the last of many; groups of uneven sizes.
func TestLoad(t *testing.T) {
	b := openGPU(t)
	s := contract.Shape{Hidden: 64, Experts: 512, TopK: 3, Width: 16, SharedWidth: 16, NormTopK: true}
	p := newPair(t, b, s, loud(s, 21), false)
	p.check("every token to the last three", testgen.Tokens(4096, s.Hidden, 22), slices.Repeat([]int32{511, 509, 510}, 4096), false)

	counts := []int{162, 0, 2577, 446, 0, 83}
	uneven := contract.Shape{Hidden: 64, Experts: len(counts), TopK: 1, Width: 16}
	var ids []int32
	for e, n := range counts {
		ids = append(ids, slices.Repeat([]int32{int32(e)}, n)...)
	}
	seeded(25).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	q := newPair(t, b, uneven, loud(uneven, 27), false)
	for i := range Tilings {
		q.have.tiling = &Tilings[i]
		q.check("uneven groups", testgen.Tokens(len(ids), uneven.Hidden, 26), ids, true)
	}
}
