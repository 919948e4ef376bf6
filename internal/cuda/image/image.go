// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package image is the compiled kernels, embedded, and the proof that they are those of the sources beside it: the digest
// of sources and flags equals image.lock's and the one compiled into the image; the kernels in it are those of the generated
// table; the same compiler gives the same bytes; and the GPU gives the digest back.
package image

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

//go:generate go run github.com/samebit/samebit/internal/cmd/cubuild

// Cubin is the image for sm_90a.
//
//go:embed layer_sm90a.cubin
var Cubin []byte

//go:embed image.lock
var lock string

// Lock says what the image was made of.
type Lock struct {
	Digest   string // of the sources and flags, in hex: Digest's
	Flags    string // nvcc's, without what names files and the digest
	Compiler string // nvcc's version
	Cubin    string // the image's SHA-256, in hex
}

// ReadLock gives image.lock.
func ReadLock() (Lock, error) {
	var l Lock
	fields := map[string]*string{"digest": &l.Digest, "flags": &l.Flags, "compiler": &l.Compiler, "cubin": &l.Cubin}
	for line := range strings.Lines(lock) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		to := fields[name]
		if to == nil {
			return Lock{}, fmt.Errorf("image.lock: line %q: need digest, flags, compiler or cubin", strings.TrimSpace(line))
		}
		*to = value
	}
	return l, nil
}

func (l Lock) String() string {
	return fmt.Sprintf("digest: %s\nflags: %s\ncompiler: %s\ncubin: %s\n", l.Digest, l.Flags, l.Compiler, l.Cubin)
}

// Digest is the digest of the kernels' sources, in dir, and of the compiler's flags.
func Digest(dir fs.FS, flags string) (string, error) {
	names, err := fs.Glob(dir, "*.cu*")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "flags %s\n", flags)
	for _, name := range names { // sorted, by Glob
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			return "", err
		}
		text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")) // however git checked it out
		fmt.Fprintf(sum, "file %s %d\n", path.Base(name), len(text))
		sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
