// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
)

// product is one matrix product as a tensor core gave it: d [M,N] is c plus a [M,K] times b [N,K] transposed.
type product struct {
	name    string // kind and K
	kind    string
	m, n, k int
	a, b    []contract.BF16
	c, d    []float32
}

// productName is the name of one of a product's four tensors: the product's, its kind, its K, which of the four.
var productName = regexp.MustCompile(`^((.+)\.k([0-9]+))\.([abcd])$`)

// products are those of a file, sorted by name.
func products(f *safetensors.File) ([]*product, error) {
	all := map[string]*product{}
	for _, name := range f.Names() {
		match := productName.FindStringSubmatch(name)
		if match == nil {
			return nil, fmt.Errorf("%s: tensor %q: need names such as normal.k64.a", f.Path(), name)
		}
		p := all[match[1]]
		if p == nil {
			k, err := strconv.Atoi(match[3])
			if err != nil {
				return nil, fmt.Errorf("%s: tensor %q: %w", f.Path(), name, err)
			}
			p = &product{name: match[1], kind: match[2], k: k}
			all[p.name] = p
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: found no tensors: need <kind>.k<K>.{a,b,c,d}", f.Path())
	}
	var list []*product
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		if err := p.read(f); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

func (p *product) read(f *safetensors.File) (err error) {
	if p.a, p.m, err = matrix(f, p.name+".a", safetensors.Tensor.BF16, anyRows, p.k); err != nil {
		return err
	}
	if p.b, p.n, err = matrix(f, p.name+".b", safetensors.Tensor.BF16, anyRows, p.k); err != nil {
		return err
	}
	if p.c, _, err = matrix(f, p.name+".c", safetensors.Tensor.F32, p.m, p.n); err != nil {
		return err
	}
	p.d, _, err = matrix(f, p.name+".d", safetensors.Tensor.F32, p.m, p.n)
	return err
}

// row is row i of a matrix of k columns.
func row[T any](m []T, i, k int) []T { return m[i*k : (i+1)*k] }

// contract is the product by the contract: each output a chain over K from its c (R1).
func (p *product) contract() []float32 {
	d := make([]float32, len(p.c))
	for i := range p.m {
		for j := range p.n {
			acc, a, b := p.c[i*p.n+j], row(p.a, i, p.k), row(p.b, j, p.k)
			for k := 0; k < p.k; k += group {
				to := min(k+group, p.k)
				acc = contract.TC16(acc, a[k:to], b[k:to])
			}
			d[i*p.n+j] = acc
		}
	}
	return d
}
