// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package tcdot

import (
	"math"
	"unsafe"

	"github.com/samebit/samebit/contract"
)

// Exponents here are BF16 exponent fields, of bias 127.
const (
	group   = 16
	span    = 63  // binades below the top that a byte still tells apart
	minTop  = 64  // so that top-span is at least 1 and a subnormal needs no care
	maxTop  = 254 // finite
	minPair = 2*127 - 62
	maxPair = 2*127 + 100
	zeroTop = 127 // stands for the top of zeros alone
)

// NotFinite is the Top of what has an infinity or a NaN.
const NotFinite = 255

// Top is the largest exponent field among w, NotFinite where w has an infinity or a NaN: what a product wants to know of a whole
// matrix. It reads all of it, at memory speed.
func Top(w []contract.BF16) int {
	m := int(largest(words(w)))
	if m == 0 {
		return zeroTop
	}
	return max(m>>7, 1)
}

func largestGo(x []uint16) uint32 {
	var m uint16
	for _, v := range x {
		m = max(m, v&0x7FFF)
	}
	return uint32(m)
}

// words is the memory of v.
func words(v []contract.BF16) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.SliceData(v)), len(v))
}

// fast says whether the fast path takes operands of these tops.
func fast(x, w int) bool {
	return x >= minTop && w >= minTop && x <= maxTop && w <= maxTop && x+w >= minPair && x+w <= maxPair
}

// pow2 is the bits of 2^e, subnormal where it must be.
func pow2(e int) uint32 {
	if e < -126 {
		return 1 << (149 + e)
	}
	return uint32(e+127) << 23
}

func float(b uint32) float32 { return math.Float32frombits(b) }

// Left is an operand of N rows of K values. It may serve any number of products, one at a time, which make it ready in the forms
// that they need.
type Left struct {
	n, k   int
	rows   [][]contract.BF16
	top    []int
	spread form // for panels
	floats form // for packed weights as they lie
	pairs  form // the same for instructions on BF16
	tail   [group]uint16
}

// form is a Left made ready for the vectors, once a product has asked for it: groups of 16 k by row.
type form struct {
	data []byte
	made bool
}

func (l *Left) groups() int { return (l.k + group - 1) / group }

// Set takes rows of one length, which it keeps; its own buffers are used again.
func (l *Left) Set(rows [][]contract.BF16) {
	l.n, l.k, l.rows = len(rows), 0, rows
	if l.n > 0 {
		l.k = len(rows[0])
	}
	l.top = grow(l.top, l.n)
	for i, r := range rows {
		l.top[i] = Top(r)
	}
	l.spread.made, l.floats.made, l.pairs.made = false, false, false
}

const (
	spreadSize = 128 // bytes of a group of a row: 16 FP32 scaled so that the row's top is 2^0, 16 exponent bytes, four times each
	directSize = 96  // 16 FP32 scaled alike, or BF16 each paired with a zero; 16 words of exponent fields less the top
)

// forPanels makes the rows ready to pass panels.
func (l *Left) forPanels() []byte { return l.spread.fill(l, spreadSize, span, packSpread) }

// forPacked makes the rows ready to pass packed weights.
func (l *Left) forPacked(bf16 bool) []byte {
	if bf16 {
		return l.pairs.fill(l, directSize, 0, packPairs)
	}
	return l.floats.fill(l, directSize, 0, packFloats)
}

// fill packs the rows by the kernel pack, to which exponents count from below the top.
func (f *form) fill(l *Left, size, below int, pack func(x *uint16, ng int, dst *byte, xg int, scale, base uint32)) []byte {
	if f.made {
		return f.data
	}
	f.made = true
	g := l.groups()
	f.data = aligned(f.data, g*l.n*size)
	for i, r := range l.rows {
		top := l.top[i]
		if top < minTop || top > maxTop {
			top = zeroTop // such a row is never taken from here
		}
		scale, base := pow2(127-top), uint32(top-below)<<7
		base |= base << 16
		row := words(r)
		if l.k >= group {
			pack(&row[0], l.k/group, &f.data[i*size], l.n*size, scale, base)
		}
		if l.k%group != 0 {
			l.tail = [group]uint16{}
			copy(l.tail[:], row[l.k/group*group:])
			pack(&l.tail[0], 1, &f.data[((g-1)*l.n+i)*size], l.n*size, scale, base)
		}
	}
	return f.data
}

// grow gives n elements, of undefined contents.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// aligned gives n bytes that start on a cache line, of undefined contents.
func aligned(s []byte, n int) []byte {
	if cap(s) >= n {
		return s[:n]
	}
	b := make([]byte, n+63)
	o := int(-uintptr(unsafe.Pointer(&b[0])) & 63)
	return b[o:][:n:n]
}

// lines gives n elements that start on a cache line.
func lines[T uint16 | uint32 | float32](n int) []T {
	b := aligned(nil, n*int(unsafe.Sizeof(T(0))))
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}
