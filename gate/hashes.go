// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"

	"github.com/samebit/samebit/checkpoint/safetensors"
)

// expertHashes compares the SHA-256 of each expert's matrices, as the layer runs on them, with that of the bytes in the file,
// which it finds there by its own reading of names and layouts. On ranks the matrices are those of the experts' owners.
func expertHashes(c *check) {
	c.needCheckpoint()
	file, held := c.expertsInFile(), c.throughRanks(c.Weights)
	for e := range held.Experts {
		w := &held.Experts[e]
		c.claim(fmt.Sprintf("expert %d", e), hashOf(safetensors.Bytes(w.Gate), safetensors.Bytes(w.Up), safetensors.Bytes(w.Down)),
			hashOf(file[e].gate, file[e].up, file[e].down))
	}
	if w := held.Shared; w != nil {
		shared := file[sharedExpert]
		c.claim("shared expert", hashOf(safetensors.Bytes(w.Gate), safetensors.Bytes(w.Up), safetensors.Bytes(w.Down)),
			hashOf(shared.gate, shared.up, shared.down))
	}
}

func hashOf(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d\n", len(p))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// inFile is an expert's bytes in the file.
type inFile struct{ gate, up, down []byte }

func (f *inFile) set(what string, data []byte) {
	switch what {
	case "gate_proj", "w1":
		f.gate = data
	case "up_proj", "w3":
		f.up = data
	default:
		f.down = data
	}
}

const sharedExpert = -1

// expertsInFile finds every expert of the subject's layer.
func (c *check) expertsInFile() map[int]*inFile {
	block := fmt.Sprintf(`^model\.(?:language_model\.)?layers\.%d\.(?:mlp|block_sparse_moe)\.`, c.layer.Index)
	split := regexp.MustCompile(block + `experts\.(\d+)\.(gate_proj|up_proj|down_proj|w1|w2|w3)\.weight$`)
	fused := regexp.MustCompile(block + `experts\.(gate_up_proj|down_proj)$`)
	shared := regexp.MustCompile(block + `shared_expert\.(gate_proj|up_proj|down_proj)\.weight$`)

	experts := map[int]*inFile{sharedExpert: {}}
	for e := range c.Shape.Experts {
		experts[e] = &inFile{}
	}
	names, err := fs.Glob(c.folder, "model*.safetensors")
	c.must(err)
	for _, name := range names {
		data, err := fs.ReadFile(c.folder, name)
		c.must(err)
		eachTensor(c, name, data, func(t safetensors.Tensor) {
			if m := split.FindStringSubmatch(t.Name); m != nil {
				if e, _ := strconv.Atoi(m[1]); experts[e] != nil {
					experts[e].set(m[2], t.Data)
				}
			} else if m := shared.FindStringSubmatch(t.Name); m != nil {
				experts[sharedExpert].set(m[1], t.Data)
			} else if m := fused.FindStringSubmatch(t.Name); m != nil {
				n := len(t.Data) / c.Shape.Experts
				for e := range c.Shape.Experts {
					one := t.Data[e*n : (e+1)*n]
					if m[1] == "down_proj" {
						experts[e].down = one
					} else {
						experts[e].gate, experts[e].up = one[:n/2], one[n/2:]
					}
				}
			}
		})
	}
	return experts
}
