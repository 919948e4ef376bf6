// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package tcdot

import (
	"slices"
	"unsafe"
)

// panelOf computes n rows by the panel of outputs that begins at m0; what is in doubt, by the contract.
func (o *Worker) panelOf(p *product, n0, n, m0 int) {
	s, lanes := o.isa, o.isa.lanes
	wide := min(lanes, p.to-m0)
	bad := o.bad[:n]
	for i := range bad {
		bad[i] = 0
		if !fast(p.x.top[n0+i], p.r.top) {
			bad[i] = 1
		}
	}
	acc := o.acc[:n*lanes]
	clear(acc)
	how := 0 // of finish
	if p.r.columns {
		how = 2
	}
	// Outputs go through tmp where they do not fill the panel, and where they are added and so must be known good first.
	dst, stride := o.tmp, lanes
	direct := wide == lanes && !p.add
	if direct {
		dst, stride = p.at(n0, m0), p.stride
	}
	flush := func() {
		s.finish[how](&acc[0], &o.scale[0], &dst[0], 4*stride, n)
		how |= 1
	}
	x := p.x.forPanels()
	bytes, per := p.x.n*spreadSize, p.segment/group // bytes of a group of the left operand, groups of a segment
	for g, end := 0, p.x.groups(); g < end; g += 2 {
		o.expand(&p.r, m0, wide, g*group)
		for h := g; h < min(g+2, end); {
			to := min(g+2, end)
			if per > 0 {
				if h > 0 && h%per == 0 {
					flush()
					clear(acc)
				}
				to = min(to, (h/per+1)*per)
			}
			s.core(&o.panel[(h-g)*group*s.stride()], &x[h*bytes+n0*spreadSize], bytes, &acc[0], n, to-h, &bad[0])
			h = to
		}
	}
	if p.add && wide == lanes && !slices.Contains(bad, 1) {
		s.finish[how|1](&acc[0], &o.scale[0], &p.at(n0, m0)[0], 4*p.stride, n)
		return
	}
	flush()
	for i := range n {
		switch {
		case bad[i] != 0:
			o.slow(p, n0+i, 1, m0, m0+wide)
		case direct:
		case p.add:
			to := p.at(n0+i, m0)[:wide]
			for j, v := range o.tmp[i*lanes:][:wide] {
				accumulate(&to[j], v)
			}
		default:
			copy(p.at(n0+i, m0)[:wide], o.tmp[i*lanes:])
		}
	}
}

// expand fills the panel with 32 k, or with what is left of them and zeros.
func (o *Worker) expand(r *Right, m0, wide, k0 int) {
	s := o.isa
	scale, base := pow2(127-r.top), uint32(r.top-span)<<7
	base |= base << 16
	nk := min(32, r.k-k0)
	switch {
	case r.columns && r.packed != nil:
		w, stride := o.packedColumns(r, m0, wide, k0, nk)
		s.expandRows(&w[0], 2*stride, 0, nk, &o.panel[0], scale, base)
		clear(o.panel[nk*s.stride():])
	case r.columns:
		w, stride, ahead := o.columns(r, m0, wide, k0, nk)
		s.expandRows(&w[0], 2*stride, 2*ahead, nk, &o.panel[0], scale, base)
		clear(o.panel[nk*s.stride():])
	case r.packed != nil:
		chunk := r.packed[0].chunk(m0, k0)
		next := uintptr(unsafe.Pointer(&chunk[0])) + 8192 // two chunks on; only fetched
		s.expandPairs(&chunk[0], pairs, &o.panel[0], scale, base, next, 64)
	default:
		w, stride, next := o.rows(r, m0, wide, k0, nk)
		s.transpose(&w[0], 2*stride, &o.pairs[0])
		s.expandPairs(&o.pairs[0], pairs, &o.panel[0], scale, base, next, 2*r.k)
	}
}

// columns is where nk rows of the panel's columns lie, how far apart, and how far ahead of them the next lie. Where they are
// not all there in full they are copied aside.
func (o *Worker) columns(r *Right, m0, wide, k0, nk int) (w []uint16, stride, ahead int) {
	lanes := o.isa.lanes
	rest, rows := r.at(k0)
	if wide == lanes && rows >= nk {
		if ahead = 32 * r.outputs; rows <= 32 {
			ahead = lanes - k0*r.outputs // about where the next panel begins; it is only fetched
		}
		return words(rest)[m0:], r.outputs, ahead
	}
	clear(o.side)
	for k := range nk {
		if k == rows {
			rest, _ = r.at(k0 + k)
		}
		copy(o.side[k*lanes:], words(rest)[m0:m0+wide])
		rest = rest[r.outputs:]
	}
	return o.side, lanes, 0
}

// rows is where nk values of the panel's rows lie, how far apart, and the address of what will be needed soon.
func (o *Worker) rows(r *Right, m0, wide, k0, nk int) (w []uint16, stride int, next uintptr) {
	lanes, all := o.isa.lanes, words(r.parts[0])
	w, stride = all[m0*r.k+k0:], r.k
	ahead := 128
	if k0+ahead >= r.k {
		ahead += (lanes - 1) * r.k // the next panel
	}
	next = uintptr(unsafe.Pointer(&w[0])) + uintptr(2*ahead) // only fetched
	if wide < lanes || nk < 32 {
		clear(o.side)
		for m := range wide {
			copy(o.side[m*32:], w[m*r.k:][:nk])
		}
		w, stride = o.side, 32
	}
	return w, stride, next
}
