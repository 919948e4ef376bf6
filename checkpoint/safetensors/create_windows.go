// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"errors"
	"os"
	"path/filepath"
)

// temporary is a file that takes the place of path when it is complete.
type temporary struct {
	*os.File
	path string
}

func create(path string) (pending, error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"*")
	if err != nil {
		return nil, err
	}
	return &temporary{file, path}, nil
}

// CloseAtomicallyReplace gives the file its name.
func (t *temporary) CloseAtomicallyReplace() error {
	if err := errors.Join(t.Sync(), t.Close()); err != nil {
		return err
	}
	return os.Rename(t.Name(), t.path)
}

// Cleanup removes the file, unless it has got its name.
func (t *temporary) Cleanup() error {
	t.Close()
	return os.Remove(t.Name())
}
