// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package host

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Pages gives n zero bytes outside the collector's sight, in huge pages where the system has them, and what frees them. For
// what is large and lives long: the collector would let as much garbage pile up beside it.
func Pages(n int) (data []byte, free func(), err error) {
	if n == 0 {
		return nil, func() {}, nil
	}
	data, err = unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	wishHuge(data)
	return data, func() { unix.Munmap(data) }, nil
}

// wishHuge asks for huge pages where data has whole ones. It changes nothing but speed.
func wishHuge(data []byte) {
	const huge = 2 << 20
	if len(data) < 2*huge {
		return
	}
	from := int(-uintptr(unsafe.Pointer(&data[0])) & (huge - 1))
	unix.Madvise(data[from:from+(len(data)-from)/huge*huge], unix.MADV_HUGEPAGE)
}
