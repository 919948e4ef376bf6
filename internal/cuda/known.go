// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"unsafe"

	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/cuda/driver"
	"github.com/samebit/samebit/internal/cuda/image"
	"github.com/samebit/samebit/internal/host"
)

// The known-answer test's size: 64 rows by 16, chains of 8 steps.
const (
	knownRows, knownColumns, knownTerms = 64, 16, 128
)

// knownAnswers has the tensor cores multiply numbers of every size, and compares with the contract (R14).
func (b *Backend) knownAnswers() error {
	r := rand.New(rand.NewPCG(16, 25))
	for _, exponents := range [][2]int{{119, 16}, {90, 74}, {1, 253}, {0, 66}} {
		draw := func(n int) []contract.BF16 {
			v := make([]contract.BF16, n)
			for i := range v {
				v[i] = contract.BF16(r.Uint32()&0x807F | uint32(exponents[0]+r.IntN(exponents[1]))<<7)
				if r.IntN(40) == 0 {
					v[i] &= 0x8000
				}
			}
			return v
		}
		a, w := draw(knownRows*knownTerms), draw(knownColumns*knownTerms)
		c := make([]float32, knownRows*knownColumns)
		for i := range c {
			if i%2 == 0 {
				c[i] = draw(1)[0].Float32() * (1 + float32(r.IntN(1<<16))/(1<<16))
			}
		}
		have, err := b.tc16(a, w, c, knownTerms, false)
		if err != nil {
			return err
		}
		turned, err := b.tc16(a, w, c, knownTerms, true)
		if err != nil {
			return err
		}
		for i, h := range have {
			want := c[i]
			row, column := a[i/knownColumns*knownTerms:], w[i%knownColumns*knownTerms:]
			for k := 0; k < knownTerms; k += 16 {
				want = contract.TC16(want, row[k:k+16], column[k:k+16])
			}
			if t := turned[i]; math.Float32bits(t) != math.Float32bits(h) {
				return unsupported(fmt.Sprintf("%s, whose tensor cores gave %08X with one operand turned where it is %08X otherwise (place %d)",
					b.gpu.Name, math.Float32bits(t), math.Float32bits(h), i))
			}
			if math.Float32bits(h) != math.Float32bits(want) {
				return unsupported(fmt.Sprintf("%s, whose tensor cores gave %08X where the law gives %08X (exponents from %d, place %d)",
					b.gpu.Name, math.Float32bits(h), math.Float32bits(want), exponents[0], i))
			}
		}
	}
	return nil
}

// tc16 runs the chain over k terms, a multiple of 64, from c [64,16]: a is [64,k], and lies turned or not where it is multiplied; w is
// [16,k].
func (b *Backend) tc16(a, w []contract.BF16, c []float32, k int, turned bool) ([]float32, error) {
	room, _, err := b.take(2*len(a) + 2*len(w) + 8*len(c))
	if err != nil {
		return nil, err
	}
	defer func() { b.give(room, b.all[room]) }()
	p := &knownParams{a: room, k: int32(k)}
	p.b = p.a + pointer(2*len(a))
	p.c = p.b + pointer(2*len(w))
	p.d = p.c + pointer(4*len(c))
	d := make([]float32, len(c))
	for _, copy := range []struct {
		to   pointer
		from []byte
	}{{p.a, host.Bytes(a)}, {p.b, host.Bytes(w)}, {p.c, host.Bytes(c)}} {
		if err := b.gpu.ToDevice(copy.to, copy.from, b.stream); err != nil {
			return nil, err
		}
	}
	kernel := image.NumbersTc16Bf16
	if turned {
		kernel = image.NumbersTc16TurnedBf16
	}
	err = b.gpu.Launch(driver.Launch{Kernel: b.kernels[kernel], Name: image.Kernels[kernel], Block: 128}, unsafe.Pointer(p), b.stream)
	if err != nil {
		return nil, err
	}
	return d, b.gpu.ToHost(host.Bytes(d), p.d, b.stream)
}
