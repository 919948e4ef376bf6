// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"strings"
	"testing"

	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
)

// hardwareResults is how many results of an H200 the file of vectors holds.
const hardwareResults = 33792

// TestTC16Hardware recomputes what the tensor cores of an H200 gave: d is the chain over K from c, with a [64,K] and
// b [16,K] (R1).
func TestTC16Hardware(t *testing.T) {
	f := open(t, "testdata/tc16-h200.safetensors")
	total := 0
	for _, name := range f.Names() {
		kind, is := strings.CutSuffix(name, ".d")
		if !is {
			continue
		}
		a, b := bf16Tensor(t, f, kind+".a"), bf16Tensor(t, f, kind+".b")
		c, d := f32Tensor(t, f, kind+".c"), f32Tensor(t, f, kind+".d")
		k := len(a) / 64
		got := make([]float32, len(d))
		for i := range got {
			got[i] = c[i]
			for s := 0; s < k; s += 16 {
				got[i] = contract.TC16(got[i], a[i/16*k+s:][:16], b[i%16*k+s:][:16])
			}
		}
		sameBits(t, kind, 16, got, d)
		total += len(got)
	}
	if total != hardwareResults {
		t.Errorf("%d hardware results compared: need %d", total, hardwareResults)
	}
	t.Logf("%d hardware results compared", total)
}

func open(t *testing.T, path string) *safetensors.File {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func bf16Tensor(t *testing.T, f *safetensors.File, name string) []contract.BF16 {
	t.Helper()
	x, _ := f.Tensor(name)
	v, err := x.BF16()
	if err != nil {
		t.Fatalf("%s: %s: %v", f.Path(), name, err)
	}
	return v
}

func f32Tensor(t *testing.T, f *safetensors.File, name string) []float32 {
	t.Helper()
	x, _ := f.Tensor(name)
	v, err := x.F32()
	if err != nil {
		t.Fatalf("%s: %s: %v", f.Path(), name, err)
	}
	return v
}

func i32Tensor(t *testing.T, f *safetensors.File, name string) []int32 {
	t.Helper()
	x, _ := f.Tensor(name)
	v, err := x.I32()
	if err != nil {
		t.Fatalf("%s: %s: %v", f.Path(), name, err)
	}
	return v
}
