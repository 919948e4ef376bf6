// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/samebit/samebit/contract"
)

// version is the program's own version, as the go command stamped it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func versionLine() string {
	return fmt.Sprintf("samebit %s, contract %d, %s %s/%s", version(), contract.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
