// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract

// GateUp gives the row's gate g and up u [I], kept in FP32, and h [I], the SwiGLU of both in BF16 (R6). x is [H].
func (e *Expert) GateUp(x []BF16) (g, u []float32, h []BF16) {
	width := len(e.Gate) / len(x)
	g, u, h = make([]float32, width), make([]float32, width), make([]BF16, width)
	for i := range h {
		g[i] = TCDot(x, row(e.Gate, i, len(x)))
		u[i] = TCDot(x, row(e.Up, i, len(x)))
		h[i] = SwiGLU(g[i], u[i])
	}
	return g, u, h
}

// DownRow gives the expert's row [H], in BF16, from h [I]: no route weight is inside (R6).
func (e *Expert) DownRow(h []BF16) []BF16 {
	out := make([]BF16, len(e.Down)/len(h))
	for j := range out {
		out[j] = Round(TCDot(h, row(e.Down, j, len(h))))
	}
	return out
}

// SwiGLU is bf16(silu(g) * u), silu(g) = g / (1 + e^-g); each step is rounded to nearest even (R6).
func SwiGLU(g, u float32) BF16 { return Round(silu(g) * u) }

func silu(g float32) float32 { return g / (1 + Exp(-g)) }

// row is row i of a matrix of n columns.
func row[T any](m []T, i, n int) []T { return m[i*n : (i+1)*n : (i+1)*n] }

// column is a copy of column j of a matrix of n columns.
func column[T any](m []T, j, n int) []T {
	c := make([]T, len(m)/n)
	for i := range c {
		c[i] = m[i*n+j]
	}
	return c
}
