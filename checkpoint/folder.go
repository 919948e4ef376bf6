// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/samebit/samebit/internal/tidy"
)

// CreateFolder makes the folder dst appear with all that fill puts into it, or not at all: fill works in a folder beside it, which
// then takes the name, or is removed if anything failed. It is an error if dst is there.
func CreateFolder(dst string, fill func(dir string) error) error {
	if _, err := os.Lstat(dst); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: found something there: need a name that is free", dst)
	}
	dst = filepath.Clean(dst)
	var dir string
	done, err := tidy.Make(func() (_ string, err error) {
		dir, err = os.MkdirTemp(filepath.Dir(dst), "."+filepath.Base(dst)+"-*")
		return dir, err
	})
	if err != nil {
		return err
	}
	defer done()
	defer os.RemoveAll(dir) // nothing, once it has its name
	if err := fill(dir); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // MkdirTemp's folders are the owner's alone
		return err
	}
	return os.Rename(dir, dst)
}
