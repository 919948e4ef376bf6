// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package host

import "golang.org/x/sys/unix"

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
	unix.Madvise(data, unix.MADV_HUGEPAGE) // only a wish
	return data, func() { unix.Munmap(data) }, nil
}
