// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build !linux

package host

// Pages gives n zero bytes, aligned for any element, and what frees them.
func Pages(n int) (data []byte, free func(), err error) {
	return Bytes(make([]uint64, (n+7)/8))[:n], func() {}, nil
}

func wishHuge([]byte) {}
