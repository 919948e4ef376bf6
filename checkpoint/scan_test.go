// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"encoding/binary"
	"testing"

	"github.com/samebit/samebit/contract"
)

// Every BF16 value, at every place of the words that are looked at together and in the rest, is found or passed.
func TestNonFinite(t *testing.T) {
	const n = 16 + 3
	for place := range n {
		for bits := range 1 << 16 {
			data := make([]byte, 2*n)
			for i := range n {
				binary.LittleEndian.PutUint16(data[2*i:], 0xFF7F) // the most that is finite
			}
			binary.LittleEndian.PutUint16(data[2*place:], uint16(bits))
			want := -1
			if !contract.BF16(bits).Finite() {
				want = place
			}
			if got := nonFinite(data); got != want {
				t.Fatalf("0x%04X at %d: got %d, want %d", bits, place, got, want)
			}
		}
	}
}

func TestNonFiniteFirst(t *testing.T) {
	data := make([]byte, 200)
	for _, i := range []int{99, 41, 40, 7} { // each before the last
		binary.LittleEndian.PutUint16(data[2*i:], 0x7F80)
		if got := nonFinite(data); got != i {
			t.Errorf("got %d, want %d", got, i)
		}
	}
}

func BenchmarkNonFinite(b *testing.B) {
	data := make([]byte, 1<<20)
	b.SetBytes(1 << 20)
	for b.Loop() {
		nonFinite(data)
	}
}
