// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package contract is the arithmetic of a mixture-of-experts layer, defined once and exactly, as plain scalar Go.
//
// CONTRACT.md beside this file states each rule (R0 to R14) once; each function names the rule it carries out.
// Every backend gives the bits of this package, so it is written to be read, not to be fast: an operation a file, no
// concurrency, no dependency beyond the standard library.
//
// A matrix is a slice in row-major order; a comment such as [T,H] gives its shape: T tokens, H hidden, E experts,
// K routes a token, I expert width.
package contract

// Version rises whenever any bit of any result may change. Kernel images, digests and reports carry it.
const Version = 1
