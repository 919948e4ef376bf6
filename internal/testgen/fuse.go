// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package testgen

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
)

// Fuse writes a twin of the checkpoint folder src at dst, in which one tensor holds the matrices of all experts. It has src's
// config.json and the mixture-of-experts weights of the given layers, in one file.
func Fuse(src fs.FS, dst string, layers ...int) error {
	c, err := checkpoint.OpenFS(src)
	if err != nil {
		return err
	}
	defer c.Close()
	config, err := fs.ReadFile(src, "config.json")
	if err != nil {
		return err
	}
	var tensors []safetensors.Out
	for _, n := range layers {
		l, err := c.Layer(n)
		if err != nil {
			return err
		}
		fused := l.Layout
		fused.Fused = true
		for _, e := range fused.Entries(n, l.Shape) {
			var parts [][]contract.BF16
			for _, p := range e.Parts {
				parts = append(parts, *p.In(&l.Weights))
			}
			tensors = append(tensors, safetensors.New(e.Name, e.Shape, parts...))
		}
	}
	return checkpoint.CreateFolder(dst, func(dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o666); err != nil {
			return err
		}
		return safetensors.Write(filepath.Join(dir, "model.safetensors"), tensors, map[string]string{"format": "pt"})
	})
}
