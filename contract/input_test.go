// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"fmt"
	"testing"

	"github.com/samebit/samebit/contract"
)

// TestInputGradientOrder: rows first, then the router's, each in the order given, from +0, one cast (R9).
func TestInputGradientOrder(t *testing.T) {
	row := func(v float32) []contract.BF16 { return []contract.BF16{contract.Round(v)} }
	big := contract.Round(1e20).Float32()
	for _, c := range []struct {
		name   string
		rows   [][]contract.BF16
		router []contract.Scaled
		want   contract.BF16
	}{
		{"rows in order", [][]contract.BF16{row(1e20), row(1), row(-1e20), row(1)}, nil, one},
		{"router after rows", [][]contract.BF16{row(1), row(1e20)}, []contract.Scaled{{-big, row(1)}, {1, row(2)}}, 0x4000},
		{"router in order", nil, []contract.Scaled{{big, row(1)}, {1, row(1)}, {-1, row(1e20)}, {1, row(4)}}, 0x4080},
		{"from +0", [][]contract.BF16{{sign}}, []contract.Scaled{{-1, row(0)}}, 0},
		{"one cast", [][]contract.BF16{row(1), {power(-8)}, {power(-16)}}, nil, 0x3F81},
		{"products are not fused", nil, []contract.Scaled{{f32(0x3EAAAAAB), []contract.BF16{0x3F81}}, {f32(0x3EAAAAAA), []contract.BF16{0xBF81}}}, 0x3300},
	} {
		same(t, c.name, contract.InputGradient(1, c.rows, c.router)[0], c.want)
	}
}

// TestInputRowStream: dg and du are one stream, in which a group of 16 may hold the end of dg and the start of du (R9).
func TestInputRowStream(t *testing.T) {
	// With I = 17 the second group holds dg[16] and du[0..14], and the last one du[15] and du[16].
	const width = 17
	large, small := one, power(-30)
	for _, c := range []struct {
		name string
		at   map[int]contract.BF16 // by place in the stream
		want contract.BF16
	}{
		{"du[15] is beyond the second group", map[int]contract.BF16{17: large, 18: large | sign, 32: small}, small},
		{"du[14] is in it", map[int]contract.BF16{17: large, 18: large | sign, 31: small}, 0},
		{"dg[16] is in it", map[int]contract.BF16{17: large, 18: large | sign, 16: small}, 0},
		{"gate comes first", map[int]contract.BF16{0: large, 1: large | sign, 17: small}, small},
		{"the accumulator goes on from dg to du", map[int]contract.BF16{0: large, 18: small, 33: large | sign}, 0},
	} {
		d := make([]contract.BF16, 2*width)
		for i, v := range c.at {
			d[i] = v
		}
		e := contract.Expert{Gate: repeated(one, width), Up: repeated(one, width)}
		same(t, c.name, e.InputRow(d[:width], d[width:])[0], c.want)
	}
}

// TestInputOrder pins the order of all that a layer adds to dx: the experts' rows by id, the shared row, the router's rows
// by id, the shared gate's (R9). Of three neighbours that are large, small and minus large the small one vanishes, while in any
// other place it is what is left.
func TestInputOrder(t *testing.T) {
	// The second element of x and dy is zero, so that the second column of a weight is in dx[1] alone and free to choose. The
	// first gives silu(g) = 64, slope 1, equal weights, and these factors of it in dx[1].
	rows, shared := [4]int{-5, -5, -5, -5}, -3 // dg = dh/64, of a dh of 2, 2, -2, -2 and of 8
	router, gate := 1, 2                       // dl = 2, 2, -2, -2 and dz = 4
	minus := [4]contract.BF16{0, 0, sign, sign}
	set := func(l *contract.Layer, place int, v contract.BF16, n int) {
		switch {
		case place < 4:
			l.Weights.Experts[place].Gate[1] = v ^ minus[place] | power(n-rows[place])
		case place == 4:
			l.Weights.Shared.Gate[1] = v | power(n-shared)
		case place < 9:
			l.Weights.Router[2*(place-5)+1] = v ^ minus[place-5] | power(n-router)
		default:
			l.Weights.SharedGate[1] = v | power(n-gate)
		}
	}
	expert := func(down contract.BF16) contract.Expert {
		return contract.Expert{Gate: []contract.BF16{power(6), 0}, Up: []contract.BF16{power(-6), 0}, Down: []contract.BF16{down, 0}}
	}
	for _, norm := range []bool{true, false} {
		for _, replay := range [][]int32{nil, {2, 0, 3, 1}, {3, 2, 1, 0}} {
			for small := range 10 {
				sharedExpert := expert(power(4))
				l := contract.Layer{
					Shape: contract.Shape{Hidden: 2, Experts: 4, TopK: 4, Width: 1, SharedWidth: 1, NormTopK: norm},
					Weights: contract.Weights{
						Router:     repeated(0, 8),
						Experts:    []contract.Expert{expert(power(3)), expert(power(3)), expert(power(3) | sign), expert(power(3) | sign)},
						Shared:     &sharedExpert,
						SharedGate: repeated(0, 2),
					},
				}
				want := contract.BF16(0)
				switch small {
				case 0: // first: nothing large is there yet, and the next one swallows it
					set(&l, 1, 0, 60)
					set(&l, 2, sign, 60)
				case 9: // last: all large ones are gone
					set(&l, 7, 0, 60)
					set(&l, 8, sign, 60)
					want = one
				default:
					set(&l, small-1, 0, 60)
					set(&l, small+1, sign, 60)
				}
				set(&l, small, 0, 0)
				x := []contract.BF16{one, 0}
				dx := l.Backward(l.Forward(x, replay), x, l.NewGradients())
				same(t, fmt.Sprintf("norm %t, ids %d, small at %d", norm, replay, small), dx[1], want)
			}
		}
	}
}
