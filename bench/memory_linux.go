// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os"
	"strconv"
	"strings"
)

// peak is the process's largest resident size.
func peak() int64 { return 1024 * kilobytes("/proc/self/status", "VmHWM") }

// resident is the process's resident size.
func resident() int64 { return 1024 * kilobytes("/proc/self/status", "VmRSS") }

// resetPeak makes peak forget; a kernel that does not let it keeps the largest ever.
func resetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// memory is the machine's.
func memory() int64 { return 1024 * kilobytes("/proc/meminfo", "MemTotal") }

// cpuName is the processor's.
func cpuName() string { return field("/proc/cpuinfo", "model name") }

func kilobytes(path, key string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSuffix(field(path, key), " kB"), 10, 64)
	return n
}

// field is the value of the first line "key: value", or "".
func field(path, key string) string {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
