// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package tcdot

import (
	"math"

	"github.com/samebit/samebit/contract"
)

// The portable path keeps FP32 scaled so that the top exponent is 0, 16 k of a
// row or a column together, and seven-bit exponents: 0 for zero, else 32 + the
// exponent down to 31 binades under the top. Two of them add to at most 126,
// which stands for 2^0. A word holds them for one k: of eight columns, or
// eight times that of a row.
const (
	flatSpan = 31
	tile     = 16 // columns at a time
	highs    = 0x8080808080808080
	ones     = 0x0101010101010101
)

// flat turns 16 or fewer v into FP32, padded with zeros, and exponents.
func flat(f *[16]float32, e *[16]uint8, v []contract.BF16, top int) {
	if top < minTop || top > maxTop {
		top = zeroTop // not read
	}
	scale, base := float(pow2(127-top)), uint32(top-flatSpan)
	if len(v) < 16 {
		*f, *e = [16]float32{}, [16]uint8{}
	}
	for j, b := range v {
		j &= 15
		f[j] = float(uint32(b)<<16) * scale
		x := uint32(b) & 0x7FFF
		y := max(x>>7, base) - base + 32
		if x == 0 {
			y = 0
		}
		e[j] = uint8(y)
	}
}

// max8 takes eight maxima of seven-bit numbers.
func max8(a, b uint64) uint64 {
	h := ((a | highs) - b) & highs
	return b ^ (a^b)&(h-h>>7)
}

// exponent gives what the seven bits could not: the group's true largest
// exponent sum less the tops, with 127 for 0.
func exponent(a, b []contract.BF16, tops int) int {
	m := -1 << 20
	for i := range a {
		x, y := int(a[i]&0x7FFF), int(b[i]&0x7FFF)
		if x != 0 && y != 0 {
			m = max(m, max(x>>7, 1)+max(y>>7, 1))
		}
	}
	return m - tops + 127
}

// step is one group in the scaled domain. e16 is the group's largest exponent
// sum, with 127 for 2^0, and at least 65.
func step(acc float32, x, w *[16]float32, e16 uint32) float32 {
	e := max(e16, math.Float32bits(acc)>>23&255)
	s := float((279 - e) << 23)
	sum := int64(acc*s) +
		int64(x[0]*s*w[0]) + int64(x[1]*s*w[1]) + int64(x[2]*s*w[2]) + int64(x[3]*s*w[3]) +
		int64(x[4]*s*w[4]) + int64(x[5]*s*w[5]) + int64(x[6]*s*w[6]) + int64(x[7]*s*w[7]) +
		int64(x[8]*s*w[8]) + int64(x[9]*s*w[9]) + int64(x[10]*s*w[10]) + int64(x[11]*s*w[11]) +
		int64(x[12]*s*w[12]) + int64(x[13]*s*w[13]) + int64(x[14]*s*w[14]) + int64(x[15]*s*w[15])
	// Without the bits sum>>24 nearest-even truncates; see the package comment.
	sign := sum >> 63
	mag := (sum ^ sign) - sign
	mag &^= mag >> 24
	return float32((mag^sign)-sign) * float((e-25)<<23)
}

// strip is one row by a tile of columns. Columns come one after the other
// inside a group, so that their latencies overlap.
type strip struct {
	acc     [tile]float32
	bad     [tile]bool
	a       []contract.BF16 // the row
	columns []contract.BF16 // the columns, len(a) apart
	wide    int
	tops    int
	x, w    []float32
	xe      []uint64 // a word a k
	we      []uint64 // two words a k
}

func (p *strip) run(from, to int) {
	for g := from; g < to; g++ {
		x := (*[16]float32)(p.x[16*g:])
		xe := (*[16]uint64)(p.xe[16*g:])
		w := (*[16 * tile]float32)(p.w[16*tile*g:])
		we := (*[32]uint64)(p.we[32*g:])
		var top [2]uint64
		for h := range top {
			if 8*h >= p.wide {
				break
			}
			m, n := xe[0]+we[h], xe[1]+we[2+h]
			for k := 2; k < 16; k += 2 {
				m = max8(m, xe[k]+we[2*k+h])
				n = max8(n, xe[k+1]+we[2*k+2+h])
			}
			top[h] = max8(m, n)
		}
		for c := range p.wide {
			c &= tile - 1
			m := uint32(top[c/8]>>(8*(c&7))) & 127
			if m < 64 {
				continue // every product is zero
			}
			m++
			if m < 97 {
				k, end := 16*g, min(16*g+16, len(p.a))
				t := exponent(p.a[k:end], p.columns[c*len(p.a):][k:end], p.tops)
				if t < 65 {
					p.bad[c] = true
					continue
				}
				m = uint32(t)
			}
			p.acc[c] = step(p.acc[c], x, (*[16]float32)(w[16*c:]), m)
		}
	}
}

// portable is the buffers of the path in Go alone.
type portable struct {
	x, w   []float32
	xe, we []uint64
	column []contract.BF16
	strip  strip
}

func (t *portable) run(o *Worker, p *product) {
	x, r := p.x, &p.r
	g, k := x.groups(), x.k
	t.x, t.xe = grow(t.x, group*g*x.n), grow(t.xe, group*g*x.n)
	t.w, t.we = grow(t.w, group*g*tile), grow(t.we, 2*group*g)
	var e [group]uint8
	for i := range x.n {
		for h := range g {
			j := group * (i*g + h)
			flat((*[group]float32)(t.x[j:]), &e, x.rows[i][group*h:min(group*h+group, k)], x.top[i])
			for q, v := range e {
				t.xe[j+q] = uint64(v) * ones
			}
		}
	}
	per := g
	if p.segment > 0 {
		per = p.segment / group
	}
	for m0 := p.from; m0 < p.to; m0 += tile {
		wide := min(tile, p.to-m0)
		columns := t.columns(r, m0, wide)
		for i := range x.n {
			if !fast(x.top[i], r.top) {
				o.slow(p, i, 1, m0, m0+wide)
				continue
			}
			t.strip = strip{a: x.rows[i], columns: columns, wide: wide, tops: x.top[i] + r.top, w: t.w, we: t.we}
			t.strip.x, t.strip.xe = t.x[i*g*group:], t.xe[i*g*group:]
			t.row(o, p, i, m0, g, per)
		}
	}
}

// row computes one row by the strip's columns.
func (t *portable) row(o *Worker, p *product, i, m0, groups, per int) {
	s, back := &t.strip, float(pow2(t.strip.tops-254))
	var sum [tile]float32
	for h := 0; h < groups; h += per {
		s.acc = [tile]float32{}
		s.run(h, min(h+per, groups))
		for c, v := range s.acc {
			v = float32(v * back) // never fused with the add
			if h > 0 {
				v += sum[c]
			}
			sum[c] = v
		}
	}
	to := p.at(i, m0)[:s.wide]
	for c := range to {
		switch {
		case s.bad[c]:
			o.slow(p, i, 1, m0+c, m0+c+1)
		case p.add:
			accumulate(&to[c], sum[c])
		default:
			to[c] = sum[c]
		}
	}
}

// columns readies a tile of outputs and gives them, each in one piece, k apart.
func (t *portable) columns(r *Right, m0, wide int) []contract.BF16 {
	k := r.k
	t.column = grow(t.column, tile*k)
	for c := range wide {
		if r.columns {
			continue
		}
		copy(t.column[c*k:], r.parts[0][(m0+c)*k:][:k])
	}
	if r.columns {
		at := 0
		for _, p := range r.parts {
			for ; len(p) > 0; p = p[r.outputs:] {
				for c, v := range p[m0 : m0+wide] {
					t.column[c*k+at] = v
				}
				at++
			}
		}
	}
	top := r.top
	if top < minTop || top > maxTop {
		top = zeroTop // not read
	}
	scale := float(pow2(127 - top))
	var field [256]uint8
	for e := range field {
		field[e] = uint8(max(e-(top-flatSpan), 0) + 32)
	}
	for h := range (k + group - 1) / group {
		w, we := (*[group * tile]float32)(t.w[group*tile*h:]), (*[2 * group]uint64)(t.we[2*group*h:])
		n := min(group, k-group*h)
		if wide < tile || n < group {
			*w, *we = [group * tile]float32{}, [2 * group]uint64{}
		}
		for c0 := 0; c0 < wide; c0 += 8 {
			for q := range n {
				var e uint64
				at := c0*k + group*h + q
				for c := c0; c < min(c0+8, wide); c++ {
					v := uint32(t.column[at])
					at += k
					w[(group*c+q)&(group*tile-1)] = float(v<<16) * scale
					y := uint64(field[v>>7&255])
					if v&0x7FFF == 0 {
						y = 0
					}
					e |= y << (8 * (c & 7))
				}
				we[(2*q+c0/8)&31] = e
			}
		}
	}
	return t.column
}
