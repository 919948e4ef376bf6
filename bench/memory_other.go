// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build !linux && !darwin

package bench

import (
	"os"
	"runtime"
)

// peak is what Go has from the system, which it seldom gives back.
func peak() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys)
}

// resident is not known.
func resident() int64 { return 0 }

func resetPeak() {}

// memory is not known.
func memory() int64 { return 0 }

// cpuName is the processor's, where the system tells.
func cpuName() string { return os.Getenv("PROCESSOR_IDENTIFIER") }
