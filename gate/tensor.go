// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"strings"

	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/internal/bits"
)

// tensor is a named result: one tensor, or parts that are alike and follow one another, as the experts' matrices do.
type tensor struct {
	name  string
	axes  []string // what the coordinates count: token, column
	parts []safetensors.Tensor
}

// matrix is a tensor of one part, [n, columns], from the token, expert or row that its first axis counts.
func matrix[T safetensors.Element](name, first, second string, columns int, v []T) tensor {
	return tensor{name, []string{first, second}, []safetensors.Tensor{bits.Of(name, []int{len(v) / columns, columns}, v)}}
}

// digest is the tensor's digest; that of parts is of their digests.
func (t tensor) digest() string {
	if len(t.parts) == 1 {
		return bits.Digest(t.parts[0])
	}
	digests := map[string]string{}
	for i, p := range t.parts {
		digests[fmt.Sprintf("%s %d", t.name, i)] = bits.Digest(p)
	}
	return bits.DigestOf(digests)
}

// digestOf is one digest of tensors.
func digestOf(tensors ...tensor) string {
	digests := map[string]string{}
	for _, t := range tensors {
		digests[t.name] = t.digest()
	}
	return bits.DigestOf(digests)
}

// compare compares t, bit for bit, with what it must be. Coordinates have the part first, where there are parts.
func (t tensor) compare(need tensor, options ...bits.Option) bits.Difference {
	d := bits.Difference{Name: t.name}
	if len(t.parts) != len(need.parts) {
		d.Mismatch = fmt.Sprintf("%d parts against %d", len(t.parts), len(need.parts))
		return d
	}
	whole := len(t.parts) == 1
	for i := range t.parts {
		one := bits.Compare(t.parts[i], need.parts[i], options...)
		place := func(p *bits.Place) *bits.Place {
			if p != nil && !whole {
				p.Index += d.Elements
				p.At = append([]int{i}, p.At...)
			}
			return p
		}
		if d.Mismatch == "" {
			d.Mismatch = one.Mismatch
		}
		if d.First == nil {
			d.First = place(one.First)
		}
		if d.FirstBad == nil {
			d.FirstBad = place(one.FirstBad)
		}
		d.Elements, d.Count, d.NonFinite = d.Elements+one.Elements, d.Count+one.Count, d.NonFinite+one.NonFinite
		d.MaxULP = max(d.MaxULP, one.MaxULP)
	}
	return d
}

// where says for people which element a place is: token 3, column 17.
func (t tensor) where(p *bits.Place) string {
	var words []string
	for i, n := range p.At {
		words = append(words, fmt.Sprintf("%s %d", t.axes[i], n))
	}
	return strings.Join(words, ", ")
}
