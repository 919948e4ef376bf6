// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bench

import "golang.org/x/sys/unix"

// peak is the process's largest resident size.
func peak() int64 {
	var use unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &use) != nil {
		return 0
	}
	return use.Maxrss // bytes here
}

// resident is not known.
func resident() int64 { return 0 }

func resetPeak() {}

// memory is the machine's.
func memory() int64 {
	n, _ := unix.SysctlUint64("hw.memsize")
	return int64(n)
}

// cpuName is the processor's.
func cpuName() string {
	name, _ := unix.Sysctl("machdep.cpu.brand_string")
	return name
}
