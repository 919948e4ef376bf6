// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build unix

package safetensors

import (
	"os"

	"golang.org/x/sys/unix"
)

func mapFile(file *os.File, size int64) ([]byte, error) {
	return unix.Mmap(int(file.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
}

func unmap(data []byte) error { return unix.Munmap(data) }

// dontNeed lets whole pages of a map go; they come back from the file when they are read again.
func dontNeed(data []byte) { unix.Madvise(data, unix.MADV_DONTNEED) }
