// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bits

import (
	"math"
	"strings"
	"testing"

	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
)

func TestCompareSaysWhere(t *testing.T) {
	a := make([]contract.BF16, 24*128)
	for i := range a {
		a[i] = 0x3F80
	}
	b := append([]contract.BF16(nil), a...)
	b[17], b[1000], b[3071] = 0x3F81, 0x3F81, 0x3F7F
	got := Slices("y", []int{24, 128}, a, b).String()
	if want := "y: 3 of 3072 differ, first at [0,17]: 3F80 (1) against 3F81 (1.0078125), at most 1 ulp"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if d := Slices("y", []int{24, 128}, a, a); !d.Same() || d.String() != "y: 3072 the same" {
		t.Error(d)
	}
}

func TestCompareLastElementOfManyChunks(t *testing.T) {
	n := 3*chunk/4 + 5
	a, b := make([]float32, n), make([]float32, n)
	b[n-1] = 1
	d := Slices("g", []int{n}, a, b)
	if d.Count != 1 || d.First.Index != n-1 || d.First.At[0] != n-1 {
		t.Error(d)
	}
	if b[n-1] = 0; !Slices("g", []int{n}, a, b).Same() {
		t.Error("equal tensors differ")
	}
}

func TestCompareZerosOfDifferentSigns(t *testing.T) {
	d := Slices("z", []int{1}, []float32{0}, []float32{float32(math.Copysign(0, -1))})
	if want := "z: 1 of 1 differ, first at [0]: 00000000 (0) against 80000000 (-0), at most 1 ulp"; d.String() != want {
		t.Errorf("%s\nwant %s", d, want)
	}
}

func TestCompareRefusesNonFinite(t *testing.T) {
	inf, nan := float32(math.Inf(1)), math.Float32frombits(0x7FFFFFFF)
	for at := range 40 {
		for _, bad := range []float32{inf, -inf, nan, math.Float32frombits(0xFF800001)} {
			v := make([]float32, 40)
			v[at] = bad
			d := Slices("v", []int{5, 8}, v, v)
			if d.Same() || d.Count != 0 || d.NonFinite != 1 || d.FirstBad.Index != at {
				t.Fatal(d)
			}
			if d := Slices("v", []int{5, 8}, v, v, AllowNonFinite); !d.Same() {
				t.Fatal(d)
			}
		}
	}
	d := Slices("v", []int{2}, []contract.BF16{0x7FC0, 0}, []contract.BF16{0x7FC0, 1})
	want := "v: 1 of 2 differ, first at [1]: 0000 (0) against 0001 (9.1835e-41), at most 1 ulp; " +
		"1 of 2 are NaN or infinite, first at [0]: 7FC0 (NaN) against 7FC0 (NaN)"
	if d.String() != want {
		t.Errorf("%s\nwant %s", d, want)
	}
	other := math.Float32frombits(0x7FC00000)
	if d := Slices("v", []int{1}, []float32{nan}, []float32{other}, AllowNonFinite); d.Count != 1 || d.MaxULP != 0 {
		t.Error("NaNs of two payloads:", d)
	}
}

func TestCompareKinds(t *testing.T) {
	a := Of("t", []int{2, 3}, make([]float32, 6))
	for want, b := range map[string]safetensors.Tensor{
		"t: F32 [2,3] against F32 [3,2]": Of("t", []int{3, 2}, make([]float32, 6)),
		"t: F32 [2,3] against I32 [2,3]": Of("t", []int{2, 3}, make([]int32, 6)),
		"t: F32 [2,3] against F32 [6]":   Of("t", []int{6}, make([]float32, 6)),
	} {
		if d := Compare(a, b); d.Same() || d.String() != want {
			t.Errorf("%s\nwant %s", d, want)
		}
	}
	unknown := safetensors.Tensor{Name: "q", Dtype: "F8_E4M3", Shape: []int{1}, Data: []byte{0}}
	if d := Compare(unknown, unknown); d.Same() || !strings.Contains(d.String(), "F8_E4M3") {
		t.Error(d)
	}
	empty := Of("e", []int{0, 3}, []float32{})
	if d := Compare(empty, empty); !d.Same() {
		t.Error(d)
	}
	if d := Slices("i", nil, []int32{-3}, []int32{4}); d.String() != "i: 1 of 1 differ, first at []: FFFFFFFD (-3) against 00000004 (4), at most 7 ulp" {
		t.Error(d)
	}
}

// Every BF16 pattern, and the neighbours in value, are one step apart.
func TestElementBF16(t *testing.T) {
	e := elements[safetensors.BF16]
	for v := range uint64(1 << 16) {
		b := contract.BF16(v)
		if e.finite(v) != b.Finite() {
			t.Fatalf("%04X: finite %t", v, e.finite(v))
		}
		if e.nan(v) != math.IsNaN(float64(b.Float32())) {
			t.Fatalf("%04X: nan %t", v, e.nan(v))
		}
		if got, want := e.value(v), float64(b.Float32()); !e.nan(v) && math.Float64bits(got) != math.Float64bits(want) {
			t.Fatalf("%04X: %v, want %v", v, got, want)
		}
		if v > 0 && v != 0x8000 && e.distance(v-1, v) != 1 {
			t.Fatalf("%04X: %d from the one before", v, e.distance(v-1, v))
		}
	}
	if e.distance(0, 0x8000) != 1 || e.distance(0x3F80, 0xBF80) != 2*0x3F80+1 {
		t.Error("distance across zero")
	}
}

func TestElementValues(t *testing.T) {
	for _, c := range []struct {
		dtype safetensors.Dtype
		bits  uint64
		text  string
	}{
		{"F16", 0x3C01, "3C01 (1.0009766)"}, {"F16", 0x0001, "0001 (5.9604645e-08)"}, {"F16", 0xFC00, "FC00 (-Inf)"},
		{"F32", 0x3DCCCCCD, "3DCCCCCD (0.1)"}, {"F64", 0x3FB999999999999A, "3FB999999999999A (0.1)"},
		{"I8", 0x80, "80 (-128)"}, {"U8", 0x80, "80 (128)"}, {"I64", 1<<64 - 1, "FFFFFFFFFFFFFFFF (-1)"}, {"BOOL", 1, "01 (1)"},
	} {
		if got := elements[c.dtype].text(c.bits); got != c.text {
			t.Errorf("%s: %s, want %s", c.dtype, got, c.text)
		}
	}
}

func BenchmarkCompare(b *testing.B) {
	x := make([]contract.BF16, 1<<27)
	y := append([]contract.BF16(nil), x...)
	tx, ty := Of("x", []int{len(x)}, x), Of("x", []int{len(y)}, y)
	b.SetBytes(int64(2 * len(tx.Data)))
	for b.Loop() {
		if d := Compare(tx, ty); !d.Same() {
			b.Fatal(d)
		}
	}
}
