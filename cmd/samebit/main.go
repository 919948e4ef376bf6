// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Samebit runs, checks and compares bit-exact mixture-of-experts layers: samebit --help.
package main

import (
	"os"

	"github.com/samebit/samebit/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
