// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/samebit/samebit/internal/tidy"
)

// Out is a tensor to write. Its data is Parts one after the other or, for what memory should not hold at once, what Stream writes.
type Out struct {
	Name   string
	Dtype  Dtype
	Shape  []int
	Parts  [][]byte
	Stream func(io.Writer) error // where it is not nil, Parts is not looked at
}

// New makes an Out of typed parts, which are joined in their order when written. It shares their memory.
func New[T Element](name string, shape []int, parts ...[]T) Out {
	out := Out{Name: name, Dtype: dtypeOf[T](), Shape: shape, Parts: make([][]byte, len(parts))}
	for i, part := range parts {
		out.Parts[i] = Bytes(part)
	}
	return out
}

// Write makes a file of the tensors at path, in place of any that is there. The file appears whole or not at all. Like the
// reference implementation it lays tensors out by alignment, the largest first, then by name. Metadata may be nil.
// An error names the file and the tensor: a name that is there twice, an unknown dtype, data that is not the shape's size.
func Write(path string, tensors []Out, metadata map[string]string) error {
	if err := write(path, tensors, metadata); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func write(path string, tensors []Out, metadata map[string]string) error {
	tensors = slices.Clone(tensors)
	slices.SortFunc(tensors, func(a, b Out) int {
		return cmp.Or(cmp.Compare(b.Dtype.rank(), a.Dtype.rank()), cmp.Compare(a.Name, b.Name))
	})
	header, err := header(tensors, metadata)
	if err != nil {
		return err
	}
	var file pending
	done, err := tidy.Make(func() (_ string, err error) {
		if file, err = create(path); err != nil {
			return "", err
		}
		return file.Name(), nil
	})
	if err != nil {
		return err
	}
	defer done()
	defer file.Cleanup() // of what is left of it: nothing, once it has been moved into place
	if _, err := file.Write(header); err != nil {
		return err
	}
	for _, t := range tensors {
		if err := t.write(file); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	return file.CloseAtomicallyReplace()
}

// pending is a file that does not have its name yet.
type pending interface {
	io.Writer
	Name() string // while it is half-written
	Cleanup() error
	CloseAtomicallyReplace() error
}

// header is the file up to its data section, for tensors in the order of their data.
func header(tensors []Out, metadata map[string]string) ([]byte, error) {
	b := append(make([]byte, lengthSize), '{')
	member := func(key string, value any) error {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		name, err := marshal(key)
		if err != nil {
			return err
		}
		text, err := marshal(value)
		b = append(append(append(b, name...), ':'), text...)
		return err
	}
	if metadata != nil {
		if err := member(metadataKey, metadata); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{metadataKey: true}
	offset := 0
	for _, t := range tensors {
		size, err := t.check()
		switch {
		case err != nil:
		case seen[t.Name]:
			err = fmt.Errorf("the name is taken: need each name once, and none to be %s", metadataKey)
		case size > maxInt-offset:
			err = fmt.Errorf("found data beyond byte %d of the file", maxInt)
		default:
			seen[t.Name] = true
			err = member(t.Name, struct {
				Dtype   Dtype  `json:"dtype"`
				Shape   []int  `json:"shape"`
				Offsets [2]int `json:"data_offsets"`
			}{t.Dtype, append([]int{}, t.Shape...), [2]int{offset, offset + size}})
			offset += size
		}
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	b = append(b, '}')
	for len(b)%8 != 0 { // so that the data section is aligned
		b = append(b, ' ')
	}
	n := len(b) - lengthSize
	if n > maxHeader {
		return nil, fmt.Errorf("found a header of %d bytes: need at most %d", n, maxHeader)
	}
	binary.LittleEndian.PutUint64(b, uint64(n))
	return b, nil
}

// marshal is v as the reference implementation writes it: <, > and & as they are.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// check gives the size of t in bytes, if all about it is right that can be known before it is written.
func (t Out) check() (int, error) {
	if !utf8.ValidString(t.Name) {
		return 0, fmt.Errorf("found a name that is not UTF-8")
	}
	if t.Dtype.Bits() == 0 {
		return 0, fmt.Errorf("found dtype %q: need one that the format has", t.Dtype)
	}
	need, ok := t.Dtype.size(t.Shape)
	if !ok {
		return 0, fmt.Errorf("found %s %v: need a size that is whole bytes and fits 63 bits", t.Dtype, t.Shape)
	}
	if t.Stream != nil {
		return need, nil
	}
	have := 0
	for _, part := range t.Parts {
		have += len(part)
	}
	return need, t.match(have, need)
}

func (t Out) match(have, need int) error {
	if have != need {
		return fmt.Errorf("found %d bytes of data: need %d for %s %v", have, need, t.Dtype, t.Shape)
	}
	return nil
}

// write writes t's data to w.
func (t Out) write(w io.Writer) error {
	if t.Stream != nil {
		need, _ := t.Dtype.size(t.Shape)
		counter := &counter{w: w}
		if err := t.Stream(counter); err != nil {
			return err
		}
		return t.match(counter.n, need)
	}
	for _, part := range t.Parts {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// counter counts what goes through it.
type counter struct {
	w io.Writer
	n int
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += n
	return n, err
}
