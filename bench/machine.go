// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"fmt"
	"os"
	"runtime"

	"github.com/samebit/samebit/internal/cpu"
)

// Machine are the lines that say where results come from.
func Machine() []Setting {
	settings := []Setting{{"goos", runtime.GOOS}, {"goarch", runtime.GOARCH}, {"go", runtime.Version()},
		{"cpu", cpuName()}, {"cores", fmt.Sprint(runtime.GOMAXPROCS(0))}}
	if m := memory(); m > 0 {
		settings = append(settings, Setting{"memory", fmt.Sprintf("%.1f GB", float64(m)/1e9)})
	}
	return settings
}

// Settings are the lines that say what ran the subject.
func (s *Subject) Settings() []Setting {
	switch s.backend {
	case "cpu":
		return []Setting{{"kernels", cmp.Or(os.Getenv(cpu.Env), cpu.Kernels()[0])}, {"workers", fmt.Sprint(s.workers)}}
	case "cuda":
		return []Setting{{"gpu", s.Device()}}
	}
	return nil
}

// ReadsHostMemory says whether a backend's speed has to do with that of the machine's own memory.
func ReadsHostMemory(backend string) bool { return backend != "cuda" }

// Settings are the lines of a bandwidth.
func (b Bandwidth) Settings() []Setting {
	return []Setting{{"read-bandwidth", fmt.Sprintf("%.1f GB/s", b.All/1e9)},
		{"read-bandwidth-core", fmt.Sprintf("%.1f GB/s", b.Core/1e9)}}
}
