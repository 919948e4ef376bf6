// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build unix

package safetensors

import (
	"path/filepath"

	"github.com/google/renameio/v2"
)

func create(path string) (pending, error) {
	return renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithPermissions(0o666))
}
