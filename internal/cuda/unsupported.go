// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build !(linux && (amd64 || arm64))

package cuda

import (
	"runtime"

	"github.com/samebit/samebit/backend"
)

func init() {
	backend.Register("cuda", func(backend.Options) (backend.Backend, error) {
		return nil, &backend.UnsupportedError{Backend: "cuda", Need: "linux on amd64 or arm64", Have: runtime.GOOS + "/" + runtime.GOARCH}
	})
}
