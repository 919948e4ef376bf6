// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"os"
	"slices"
	"strings"
	"testing"
)

// The sources, the lock and the digest inside the image are of one making.
func TestDigest(t *testing.T) {
	l, err := ReadLock()
	if err != nil {
		t.Fatal(err)
	}
	if d, err := Digest(os.DirFS("../kernels"), l.Flags); err != nil || d != l.Digest {
		t.Errorf("sources: digest %s, %v; image.lock has %s: run go generate ./internal/cuda/image", d, err, l.Digest)
	}
	if sum := sha256.Sum256(Cubin); hex.EncodeToString(sum[:]) != l.Cubin {
		t.Errorf("image: SHA-256 %x, image.lock has %s", sum, l.Cubin)
	}
	if !bytes.Contains(Cubin, []byte(l.Digest+"\x00")) {
		t.Error("the image does not hold image.lock's digest")
	}
}

// The kernels in the image are those of the table.
func TestKernels(t *testing.T) {
	names, err := Symbols(Cubin)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(names, Kernels[:]) {
		t.Errorf("image has %v, the table %v", names, Kernels)
	}
}

// No kernel spills or calls for memory of its own on the stack.
func TestNoLocalMemory(t *testing.T) {
	f, err := elf.NewFile(bytes.NewReader(Cubin))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range f.Sections {
		if strings.HasPrefix(s.Name, ".nv.local.") && s.Size > 0 {
			t.Errorf("%s: %d bytes", s.Name, s.Size)
		}
	}
}
