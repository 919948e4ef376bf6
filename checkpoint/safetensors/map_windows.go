// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

func mapFile(file *os.File, size int64) ([]byte, error) {
	section, err := windows.CreateFileMapping(windows.Handle(file.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return nil, err
	}
	defer windows.CloseHandle(section) // the view keeps the section
	addr, err := windows.MapViewOfFile(section, windows.FILE_MAP_READ, 0, 0, uintptr(size))
	if err != nil {
		return nil, err
	}
	// Not unsafe.Pointer(addr): vet takes that for a number that the collector might have moved away from. This is no Go memory.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), size), nil
}

func unmap(data []byte) error {
	return windows.UnmapViewOfFile(uintptr(unsafe.Pointer(unsafe.SliceData(data))))
}

// dontNeed does nothing: the system trims a map's pages by itself.
func dontNeed([]byte) {}
