// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"debug/elf"
	"slices"
	"strings"
)

// Symbols gives the kernels that an image defines, sorted.
func Symbols(cubin []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(cubin))
	if err != nil {
		return nil, err
	}
	symbols, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && elf.ST_BIND(s.Info) == elf.STB_GLOBAL && !strings.HasPrefix(s.Name, "$") {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}
