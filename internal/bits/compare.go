// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bits

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/samebit/samebit/checkpoint/safetensors"
)

// Difference is what a comparison of two tensors found. The zero value but for a name and a number of elements is two equal
// tensors.
type Difference struct {
	Name      string `json:"name"`
	Mismatch  string `json:"mismatch,omitempty"` // why no elements were compared: another dtype, another shape
	Elements  int    `json:"elements"`
	Count     int    `json:"count"`                // elements that differ
	First     *Place `json:"first,omitempty"`      // the first of them
	MaxULP    uint64 `json:"max_ulp"`              // the largest distance in units of the last place, where neither is a NaN
	NonFinite int    `json:"non_finite,omitempty"` // elements that are NaN or infinite in either tensor, unless allowed
	FirstBad  *Place `json:"first_non_finite,omitempty"`
}

// Place is an element and what the two tensors have there, in hex and decimal.
type Place struct {
	Index int    `json:"index"` // in row-major order
	At    []int  `json:"at"`    // its coordinates
	A     string `json:"a"`
	B     string `json:"b"`
}

// Option changes what Compare refuses.
type Option func(*options)

type options struct{ allowNonFinite bool }

// AllowNonFinite lets NaN and infinity pass where both tensors have the same bits.
func AllowNonFinite(o *options) { o.allowNonFinite = true }

// chunk is how many bytes are compared at once; equal ones are not looked at element by element.
const chunk = 1 << 15

// Compare compares two tensors. It reads all data on the caller's goroutine, so that safetensors.Guard covers it.
func Compare(a, b safetensors.Tensor, opts ...Option) Difference {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	d := Difference{Name: a.Name}
	e, known := elements[a.Dtype]
	switch {
	case a.Dtype != b.Dtype || !slices.Equal(a.Shape, b.Shape):
		d.Mismatch = Kind(a.Dtype, a.Shape) + " against " + Kind(b.Dtype, b.Shape)
		return d
	case !known:
		d.Mismatch = fmt.Sprintf("dtype %s: need one whose values are known here", a.Dtype)
		return d
	case len(a.Data) != len(b.Data):
		d.Mismatch = fmt.Sprintf("%d bytes against %d", len(a.Data), len(b.Data))
		return d
	}
	d.Elements = len(a.Data) / e.size
	for from := 0; from < len(a.Data); from += chunk {
		to := min(from+chunk, len(a.Data))
		x, y := a.Data[from:to], b.Data[from:to]
		if bytes.Equal(x, y) && (o.allowNonFinite || e.allFinite(x)) {
			continue
		}
		for i := range len(x) / e.size {
			d.look(e, a.Shape, from/e.size+i, e.at(x, i), e.at(y, i), o)
		}
	}
	return d
}

// Slices compares elements in memory, shaped alike.
func Slices[T safetensors.Element](name string, shape []int, a, b []T, opts ...Option) Difference {
	return Compare(Of(name, shape, a), Of(name, shape, b), opts...)
}

// look compares one element.
func (d *Difference) look(e element, shape []int, i int, a, b uint64, o options) {
	place := func() *Place { return &Place{i, coordinates(i, shape), e.text(a), e.text(b)} }
	if a != b {
		if d.Count++; d.First == nil {
			d.First = place()
		}
		if !e.nan(a) && !e.nan(b) {
			d.MaxULP = max(d.MaxULP, e.distance(a, b))
		}
	}
	if !o.allowNonFinite && !(e.finite(a) && e.finite(b)) {
		if d.NonFinite++; d.FirstBad == nil {
			d.FirstBad = place()
		}
	}
}

// coordinates are those of element i of a shape.
func coordinates(i int, shape []int) []int {
	at := make([]int, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		at[d] = i % shape[d]
		i /= shape[d]
	}
	return at
}

// Same reports whether the tensors are the same.
func (d Difference) Same() bool { return d.Mismatch == "" && d.Count == 0 && d.NonFinite == 0 }

// String is one line, such as
//
//	y: 3 of 3072 differ, first at [0,17]: 3F80 (1) against 3F81 (1.0078125), at most 1 ulp
func (d Difference) String() string {
	if d.Mismatch != "" {
		return d.Name + ": " + d.Mismatch
	}
	var found []string
	if d.Count > 0 {
		found = append(found, fmt.Sprintf("%d of %d differ, first at %v, at most %d ulp", d.Count, d.Elements, d.First, d.MaxULP))
	}
	if d.NonFinite > 0 {
		found = append(found, fmt.Sprintf("%d of %d are NaN or infinite, first at %v", d.NonFinite, d.Elements, d.FirstBad))
	}
	if found == nil {
		return fmt.Sprintf("%s: %d the same", d.Name, d.Elements)
	}
	return d.Name + ": " + strings.Join(found, "; ")
}

// String is [0,17]: 3F80 (1) against 3F81 (1.0078125).
func (p *Place) String() string { return fmt.Sprintf("%s: %s against %s", List(p.At), p.A, p.B) }
