// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"hash/crc32"

	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
)

// BF16 is a bfloat16 number, kept as its 16 bits.
type BF16 = contract.BF16

// row is row i of a matrix of n columns.
func row[T any](m []T, i, n int) []T { return m[i*n : (i+1)*n : (i+1)*n] }

// columnsOf is some columns of a matrix of n columns: the matrix itself where they are all.
func columnsOf[T any](m []T, n int, r contract.Range) []T {
	if r.Len() == n || n == 0 {
		return m
	}
	return appendColumns(make([]T, 0, len(m)/n*r.Len()), m, n, r)
}

// appendColumns appends some columns of a matrix of n columns.
func appendColumns[T any](to, m []T, n int, r contract.Range) []T {
	for i := range len(m) / n {
		to = append(to, row(m, i, n)[r.From:r.To]...)
	}
	return to
}

// setColumns copies a matrix into some columns of one of n columns.
func setColumns[T any](dst []T, n int, r contract.Range, src []T) {
	if r.Len() == 0 {
		return
	}
	for i := range len(src) / r.Len() {
		copy(row(dst, i, n)[r.From:r.To], row(src, i, r.Len()))
	}
}

// joinColumns is a matrix [rows,n] of its parts, which have these columns of it.
func joinColumns[T any](parts [][]T, of []contract.Range, rows, n int) []T {
	if len(parts) == 1 && of[0].Len() == n {
		return parts[0]
	}
	m := make([]T, rows*n)
	for i, p := range parts {
		setColumns(m, n, of[i], p)
	}
	return m
}

// gatherColumns is a matrix [rows,n] of which every rank has some columns.
func gatherColumns[T any](g Group, mine []T, of []contract.Range, rows, n int) ([]T, error) {
	counts := make([]int, len(of))
	for r := range of {
		counts[r] = rows * of[r].Len()
	}
	if len(of) == 1 {
		return mine, nil
	}
	parts, err := allGather(g, mine, counts)
	return joinColumns(parts, of, rows, n), err
}

// sum is a checksum of a matrix.
func sum[T any](m []T) uint32 { return crc32.Checksum(host.Bytes(m), castagnoli) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
