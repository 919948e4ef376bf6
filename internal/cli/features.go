// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import "golang.org/x/sys/cpu"

// cpuFeatures are the processor's features that a kernel may use, as the operating system lets it.
func cpuFeatures() []string {
	x, a := &cpu.X86, &cpu.ARM64
	names := []string{}
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"avx", x.HasAVX}, {"avx2", x.HasAVX2}, {"bmi2", x.HasBMI2}, {"fma", x.HasFMA},
		{"avx512f", x.HasAVX512F}, {"avx512bw", x.HasAVX512BW}, {"avx512dq", x.HasAVX512DQ}, {"avx512vl", x.HasAVX512VL},
		{"avx512ifma", x.HasAVX512IFMA}, {"avx512vbmi", x.HasAVX512VBMI}, {"avx512vnni", x.HasAVX512VNNI}, {"avx512bf16", x.HasAVX512BF16},
		{"amx-tile", x.HasAMXTile}, {"amx-int8", x.HasAMXInt8}, {"amx-bf16", x.HasAMXBF16},
		{"asimd", a.HasASIMD}, {"asimddp", a.HasASIMDDP}, {"sve", a.HasSVE}, {"sve2", a.HasSVE2},
	} {
		if f.has {
			names = append(names, f.name)
		}
	}
	return names
}
