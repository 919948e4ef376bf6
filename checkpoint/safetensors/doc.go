// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package safetensors reads and writes the safetensors file format, and knows nothing of what the tensors are for.
//
// A file is an 8-byte little-endian length n, n bytes of JSON, and the data section:
//
//	{"__metadata__": {"format": "pt"},
//	 "name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}
//
// Offsets count from the start of the data section, which the tensors fill exactly: no gap, no overlap, no rest. Data is
// row-major and little-endian, as are the machines that this package runs on (amd64, arm64).
//
// [Open] maps a file into memory, checks the whole header, and hands out slices of the map. [Write] makes a file
// appear whole or not at all. What is refused here is what the reference implementation refuses, and besides: a name
// that is there twice, an unknown field, a header that does not begin with '{'.
package safetensors
