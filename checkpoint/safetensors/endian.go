// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build armbe || arm64be || m68k || mips || mips64 || mips64p32 || ppc || ppc64 || s390 || s390x || sparc || sparc64

package safetensors

// The format is little-endian, and memory is looked at as it lies.
const _ uint = "samebit needs a little-endian machine"
