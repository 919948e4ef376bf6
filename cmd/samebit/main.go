// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Samebit runs, checks and compares bit-exact mixture-of-experts layers: samebit --help.
package main

import (
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/samebit/samebit/internal/cli"
)

func main() {
	// A full layer's gradients are gigabytes. The collector knows no machine's memory by itself, and lets as much again pile up before it
	// runs; where the limit cannot be told, it does as ever.
	memlimit.Set(memlimit.WithRatio(0.75), memlimit.WithProvider(memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)))
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}
