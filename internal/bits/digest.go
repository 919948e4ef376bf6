// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bits

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"

	"github.com/samebit/samebit/checkpoint/safetensors"
)

// Digest is the tensor's digest, in hex; the package's comment says of what.
func Digest(t safetensors.Tensor) string {
	h := begin(t.Dtype, t.Shape)
	h.Write(t.Data)
	return hex.EncodeToString(h.Sum(nil))
}

// Hashed is o with its digest taken while it is written; digest gives it afterwards.
func Hashed(o safetensors.Out) (hashed safetensors.Out, digest func() string) {
	h := begin(o.Dtype, o.Shape)
	from := o.Stream
	if from == nil {
		from = func(w io.Writer) error {
			for _, part := range o.Parts {
				for p := range slices.Chunk(part, 1<<20) { // hashed while it is in the cache
					if _, err := w.Write(p); err != nil {
						return err
					}
				}
			}
			return nil
		}
	}
	hashed = o
	hashed.Stream = func(w io.Writer) error { return from(io.MultiWriter(w, h)) }
	return hashed, func() string { return hex.EncodeToString(h.Sum(nil)) }
}

func begin(d safetensors.Dtype, shape []int) hash.Hash {
	h := sha256.New()
	fmt.Fprintln(h, Kind(d, shape))
	return h
}

// DigestOf is one digest of many tensors, from their digests by name: the SHA-256 of what sha256sum would print for them, a
// line "digest  name" each, sorted by name.
func DigestOf(digests map[string]string) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(digests)) {
		fmt.Fprintf(h, "%s  %s\n", digests[name], name)
	}
	return hex.EncodeToString(h.Sum(nil))
}
