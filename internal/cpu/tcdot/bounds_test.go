// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build unix

package tcdot

import (
	"fmt"
	"runtime/debug"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/samebit/samebit/contract"
)

// guarded is a copy of v whose end is the end of the memory that may be touched: whoever reads or writes behind it faults.
func guarded[T contract.BF16 | uint32 | float32](t *testing.T, v []T) []T {
	t.Helper()
	page, n := unix.Getpagesize(), len(v)*int(unsafe.Sizeof(v[0]))
	size := (n + page - 1) / page * page
	b, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	if err := unix.Mprotect(b[size:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	g := unsafe.Slice((*T)(unsafe.Pointer(&b[size-n])), len(v))
	copy(g, v)
	return g
}

// TestBounds: no kernel touches what lies behind an operand, a part of one, or the outputs.
func TestBounds(t *testing.T) {
	for _, isa := range rungs() {
		o := NewWorker(isa)
		for _, c := range []struct{ n, m, k int }{{1, 64, 32}, {5, 64, 48}, {17, 70, 31}, {2, 130, 40}, {33, 33, 96}, {1, 1, 1}, {1, 128, 80}} {
			t.Run(fmt.Sprintf("%s/%dx%dx%d", isa.name, c.n, c.m, c.k), func(t *testing.T) {
				defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
				var x [][]contract.BF16
				for _, row := range rowsOf(normal(c.n*c.k, 1), c.k) {
					x = append(x, guarded(t, row))
				}
				var left Left
				left.Set(x)
				w := guarded(t, normal(c.m*c.k, 0.02))
				columns := slices.Concat(transposed(rowsOf(w, c.k))...)
				cut := (c.k + 1) / 2
				parts := [][]contract.BF16{guarded(t, columns[:cut*c.m])}
				if cut < c.k {
					parts = append(parts, guarded(t, columns[cut*c.m:]))
				}
				rights := []Right{Rows(w, c.k, Top(w)), Columns(c.m, Top(w), parts...)}
				if isa.lanes > 0 {
					pack := func(w []contract.BF16, k int) *Packed {
						return o.Pack(w, k, guarded(t, make([]uint32, isa.Words(len(w)/k, k))))
					}
					var packed []*Packed
					for _, p := range parts {
						packed = append(packed, pack(p, c.m))
					}
					rights = append(rights, pack(w, c.k).Rows(), PackedColumns(packed...))
				}
				want := make([]float32, c.n*c.m)
				for i := range x {
					for j := range c.m {
						want[i*c.m+j] = contract.TCDot(x[i], w[j*c.k:][:c.k])
					}
				}
				check := func(what string, out []float32) {
					for i, v := range out {
						same(t, what, i/c.m, i%c.m, v, want[i])
					}
				}
				for q, r := range rights {
					out := guarded(t, poison(c.n*c.m))
					o.Dot(out, c.m, &left, r, 0, c.m, 0)
					check(fmt.Sprint("operand ", q), out)
				}
				acc := guarded(t, make([]float32, c.n*c.m))
				var turned [][]contract.BF16
				for _, row := range transposed(x) {
					turned = append(turned, guarded(t, row))
				}
				o.Fold(acc, c.m, turned, 0, c.n, guarded(t, columns))
				check("fold", acc)
			})
		}
	}
}
