// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract"
)

// piece is a tensor, the file that it is in, and those of its elements that matter.
type piece struct {
	file     *safetensors.File
	tensor   safetensors.Tensor
	elements []contract.Range
}

// chunkSize is how many bytes one worker looks at before it takes the next: whole words, and small against any layer.
const chunkSize = 1 << 20

// scan reads every value of BF16 pieces that matters, on all processors. The error is about the first value that is not finite, in the order of
// the pieces, whoever came upon it; or about a file that could not be read.
func scan(pieces []piece) error {
	type chunk struct {
		piece
		offset, end int // in bytes
	}
	var chunks []chunk
	for _, p := range pieces {
		for _, r := range p.elements {
			for offset := 2 * r.From; offset < 2*r.To; offset += chunkSize {
				chunks = append(chunks, chunk{p, offset, min(offset+chunkSize, 2*r.To)})
			}
		}
	}
	errs := make([]error, len(chunks))
	var next atomic.Int64
	var failed atomic.Bool // chunks are taken in order: once one has failed, all before it have been taken
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(chunks)) {
		workers.Go(func() {
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= len(chunks) {
					return
				}
				c := chunks[i]
				errs[i] = safetensors.Guard(func() error {
					data := c.tensor.Data[c.offset:c.end]
					if at := nonFinite(data); at >= 0 {
						return c.refuse(c.offset/2 + at)
					}
					return nil
				})
				if errs[i] != nil {
					errs[i] = fmt.Errorf("%s: tensor %q: %w", c.file.Path(), c.tensor.Name, errs[i])
					failed.Store(true)
				}
			}
		})
	}
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return unchanged(pieces)
}

// unchanged says whether any piece's file has changed its size.
func unchanged(pieces []piece) error {
	checked := map[*safetensors.File]bool{}
	for _, p := range pieces {
		if checked[p.file] {
			continue
		}
		checked[p.file] = true
		if err := p.file.Check(); err != nil {
			return err
		}
	}
	return nil
}

// refuse says that element i is not finite.
func (p piece) refuse(i int) error {
	value := contract.BF16(binary.LittleEndian.Uint16(p.tensor.Data[2*i:]))
	return fmt.Errorf("found %v (0x%04X) at element %d of %v: need finite weights", value.Float32(), uint16(value), i, p.tensor.Shape)
}

// nonFinite is the index of the first BF16 value in data that is an infinity or a NaN, -1 if there is none.
func nonFinite(data []byte) int {
	const (
		exponents = 0x7F80_7F80_7F80_7F80
		one       = 0x0080_0080_0080_0080
		carries   = 0x8000_8000_8000_8000
	)
	// Four values a word: an exponent field that is all ones carries into the sign's place when one is added to it.
	carry := func(at int) uint64 { return (binary.LittleEndian.Uint64(data[at:])&exponents + one) & carries }
	i := 0
	for ; i+32 <= len(data); i += 32 {
		if carry(i)|carry(i+8)|carry(i+16)|carry(i+24) != 0 {
			break
		}
	}
	for ; i+2 <= len(data); i += 2 {
		if !contract.BF16(binary.LittleEndian.Uint16(data[i:])).Finite() {
			return i / 2
		}
	}
	return -1
}
