// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package ref

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// width is group e's width.
func (l *layer) width(e int) int {
	if e == l.Experts {
		return l.SharedWidth
	}
	return l.Width
}

// of is the routed or the shared one of two.
func of[T any](l *layer, e int, routed, shared T) T {
	if e == l.Experts {
		return shared
	}
	return routed
}

// GateUp is R6 up to h.
func (l *layer) GateUp(a backend.GateUp) error {
	x, r := host.BF16(a.X), l.rows(a.Rows)
	r.each(func(e, i, at int) {
		act := of(l, e, a.Routed, a.Shared)
		g, u, h := l.expert(e).GateUp(row(x, int(r.token[i]), l.Hidden))
		if act.G != nil {
			copy(row(host.FP32(act.G), at, l.width(e)), g)
			copy(row(host.FP32(act.U), at, l.width(e)), u)
		}
		copy(row(host.BF16(act.H), at, l.width(e)), h)
	})
	return nil
}

// Down is R6 from h.
func (l *layer) Down(a backend.Down) error {
	out := host.BF16(a.Out)
	l.rows(a.Rows).each(func(e, i, at int) {
		h := row(host.BF16(of(l, e, a.Routed, a.Shared).H), at, l.width(e))
		copy(row(out, i, l.Hidden), l.expert(e).DownRow(h))
	})
	return nil
}

// Combine is R7; a token without work gives +0, a rejected one NaN.
func (l *layer) Combine(a backend.Combine) error {
	r := l.rows(a.Rows)
	in, weights, z := host.BF16(a.In), host.FP32(a.Weights), host.FP32(a.Z)
	status, y := host.I32(a.Status), host.BF16(a.Y)
	for t := range a.Rows.Tokens {
		y := row(y, t, l.Hidden)
		if s := contract.Status(status[t]); s != contract.Live {
			copy(y, contract.Workless(l.Hidden, s))
			continue
		}
		var rows [][]contract.BF16
		for _, i := range row(r.rows, t, r.slots+1)[:r.slots] {
			rows = append(rows, row(in, int(i), l.Hidden))
		}
		var shared []contract.BF16
		var gate float32
		if a.Rows.Shared {
			shared, gate = row(in, int(r.rows[t*(r.slots+1)+r.slots]), l.Hidden), z[t]
		}
		copy(y, contract.Combine(rows, row(weights, t, r.slots), shared, gate))
	}
	return nil
}
