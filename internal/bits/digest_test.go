// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bits

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"testing"

	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
)

func TestDigest(t *testing.T) {
	v := []contract.BF16{0x3F80, 0xBF80, 0x0000, 0x8000, 0x0001, 0x7F7F}
	want := sha256.Sum256([]byte("BF16 [2,3]\n\x80\x3F\x80\xBF\x00\x00\x00\x80\x01\x00\x7F\x7F"))
	if got := Digest(Of("v", []int{2, 3}, v)); got != hex.EncodeToString(want[:]) {
		t.Error(got)
	}
	if Digest(Of("v", []int{3, 2}, v)) == Digest(Of("v", []int{2, 3}, v)) {
		t.Error("one digest for two shapes")
	}
}

func TestHashedIsTheDigestOfWhatIsWritten(t *testing.T) {
	whole := make([]float32, 3<<18)
	for i := range whole {
		whole[i] = float32(i)
	}
	shape := []int{3, 1 << 18}
	parts := safetensors.New("v", shape, whole[:5], whole[5:1<<19], whole[1<<19:])
	hashed, digest := Hashed(parts)
	path := filepath.Join(t.TempDir(), "v.safetensors")
	if err := safetensors.Write(path, []safetensors.Out{hashed}, nil); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, _ := f.Tensor("v")
	if !bytes.Equal(got.Data, safetensors.Bytes(whole)) || digest() != Digest(got) || digest() != Digest(Of("v", shape, whole)) {
		t.Error("the digest is not that of the file's tensor")
	}
}

func TestDigestOf(t *testing.T) {
	want := sha256.Sum256([]byte("01  a\n02  b\n"))
	if got := DigestOf(map[string]string{"b": "02", "a": "01"}); got != hex.EncodeToString(want[:]) {
		t.Error(got)
	}
}
