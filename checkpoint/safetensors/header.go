// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/samebit/samebit/checkpoint/internal/strict"
)

const (
	lengthSize  = 8           // bytes of the header's length
	maxHeader   = 100_000_000 // bytes; the reference implementation's bound
	metadataKey = "__metadata__"
)

// Parse reads a whole file's bytes; name stands for the file in errors. The file's tensors are slices of data.
func Parse(name string, data []byte) (*File, error) {
	f := &File{path: name, data: data, index: map[string]int{}}
	if err := Guard(f.parse); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return f, nil
}

func (f *File) parse() error {
	if len(f.data) < lengthSize {
		return fmt.Errorf("found %d bytes: need at least %d, the header's length", len(f.data), lengthSize)
	}
	n, rest := binary.LittleEndian.Uint64(f.data), f.data[lengthSize:]
	switch {
	case n > maxHeader:
		return fmt.Errorf("found a header of %d bytes: need at most %d", n, maxHeader)
	case n > uint64(len(rest)):
		return fmt.Errorf("found a header of %d bytes in a file of %d: need at most %d", n, len(f.data), len(rest))
	case n == 0:
		return fmt.Errorf("found a header of 0 bytes: need a JSON object")
	case rest[0] != '{':
		return fmt.Errorf("found a header that begins with %q: need '{'", rest[:1])
	}
	header, section := rest[:n], rest[n:]
	var entries []entry
	err := strict.Document(header, func(dec *json.Decoder, key string) (err error) {
		if key == metadataKey {
			f.metadata, err = parseMetadata(dec)
			return err
		}
		e, err := parseEntry(dec)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", key, err)
		}
		e.Name = key
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		return fmt.Errorf("header: %w", err)
	}
	return f.place(entries, section)
}

// entry is a tensor of the header, with its offsets.
type entry struct {
	Tensor
	begin, end int64
}

// place cuts the data section into tensors, which must tile it.
func (f *File) place(entries []entry, section []byte) error {
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.Name, b.Name))
	})
	next := int64(0)
	for _, e := range entries {
		switch {
		case e.end > int64(len(section)):
			return fmt.Errorf("tensor %q: found data up to byte %d: need at most %d, the data section's size",
				e.Name, e.end, len(section))
		case e.begin != next:
			what := "they overlap"
			if e.begin > next {
				what = "there is a gap"
			}
			return fmt.Errorf("tensor %q: found data from byte %d: need %d, the end of the tensor before it; %s",
				e.Name, e.begin, next, what)
		}
		next = e.end
		e.Data = section[e.begin:e.end:e.end]
		f.index[e.Name] = len(f.tensors)
		f.tensors = append(f.tensors, e.Tensor)
	}
	if rest := int64(len(section)) - next; rest > 0 {
		return fmt.Errorf("found %d bytes after the last tensor: need the file to end there", rest)
	}
	return nil
}

func parseMetadata(dec *json.Decoder) (map[string]string, error) {
	metadata := map[string]string{}
	err := strict.Object(dec, func(key string) (err error) {
		metadata[key], err = strict.String(dec)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", metadataKey, err)
	}
	return metadata, nil
}

// parseEntry reads one tensor's dtype, shape and offsets and checks them against one another.
func parseEntry(dec *json.Decoder) (e entry, err error) {
	var offsets []int64
	err = strict.Object(dec, func(key string) (err error) {
		switch key {
		case "dtype":
			var s string
			s, err = strict.String(dec)
			e.Dtype = Dtype(s)
		case "shape":
			e.Shape, err = sizes[int](dec)
		case "data_offsets":
			offsets, err = sizes[int64](dec)
		default:
			return fmt.Errorf("found a field %q: need dtype, shape and data_offsets alone", key)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	if err != nil {
		return e, err
	}
	switch {
	case e.Dtype == "" || e.Shape == nil || offsets == nil:
		return e, fmt.Errorf("found a part of dtype, shape and data_offsets: need all three")
	case e.Dtype.Bits() == 0:
		return e, fmt.Errorf("found dtype %q: need one that the format has", e.Dtype)
	case len(offsets) != 2 || offsets[0] > offsets[1]:
		return e, fmt.Errorf("found data_offsets %v: need a begin and an end that is not before it", offsets)
	}
	need, ok := e.Dtype.size(e.Shape)
	if !ok {
		return e, fmt.Errorf("found %s %v: need a size that is whole bytes and fits 63 bits", e.Dtype, e.Shape)
	}
	e.begin, e.end = offsets[0], offsets[1]
	if have := e.end - e.begin; have != int64(need) {
		return e, fmt.Errorf("found %d bytes of data: need %d for %s %v", have, need, e.Dtype, e.Shape)
	}
	return e, nil
}

func sizes[T int | int64](dec *json.Decoder) ([]T, error) {
	list := []T{} // not nil: a scalar's shape is an empty list
	err := strict.Array(dec, func() error {
		n, err := strict.Size(dec)
		list = append(list, T(n))
		return err
	})
	return list, err
}
