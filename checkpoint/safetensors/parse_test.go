// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// raw is a file of this header and so many bytes of data.
func raw(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

// info is a tensor of a header.
func info(name, dtype, shape string, begin, end int) string {
	return fmt.Sprintf(`%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, name, dtype, shape, begin, end)
}

// malformed are files that must be refused, with what is said of each.
var malformed = []struct {
	name string
	data []byte
	want string
}{
	{"empty", nil, `found 0 bytes: need at least 8, the header's length`},
	{"seven bytes", make([]byte, 7), `found 7 bytes: need at least 8, the header's length`},
	{"header of 0", make([]byte, 8), `found a header of 0 bytes: need a JSON object`},
	{"header beyond the file", binary.LittleEndian.AppendUint64(nil, 9), `found a header of 9 bytes in a file of 8: need at most 0`},
	{"header beyond the bound", binary.LittleEndian.AppendUint64(nil, 100_000_001), `found a header of 100000001 bytes: need at most 100000000`},
	{"header of 2^64-1", binary.LittleEndian.AppendUint64(nil, 1<<64-1), `found a header of 18446744073709551615 bytes: need at most 100000000`},
	{"leading space", raw(" {}", 0), `found a header that begins with " ": need '{'`},
	{"array", raw("[]", 0), `found a header that begins with "[": need '{'`},
	{"not UTF-8", raw("{\"\xff\":{}}", 0), `header: found bytes that are not UTF-8: need JSON in UTF-8`},
	{"cut JSON", raw(`{"a":`, 0), `header: tensor "a": invalid JSON: unexpected EOF`},
	{"no JSON", raw(`{a}`, 0), `header: invalid JSON: invalid character 'a'`},
	{"trailing comma", raw(`{"__metadata__":{},}`, 0), `header: invalid JSON: invalid character '}'`},
	{"second object", raw(`{}{}`, 0), `header: found { after the JSON object: need its end`},
	{"duplicate tensor", raw("{"+info("a", "U8", "[1]", 0, 1)+","+info("a", "U8", "[1]", 1, 2)+"}", 2), `header: "a" is there twice: need each name once`},
	{"duplicate by escape", raw("{"+info("a", "U8", "[1]", 0, 1)+`,"\u0061":{}}`, 2), `header: "a" is there twice: need each name once`},
	{"duplicate field", raw(`{"a":{"dtype":"U8","dtype":"U8"}}`, 0), `header: tensor "a": "dtype" is there twice: need each name once`},
	{"duplicate metadata", raw(`{"__metadata__":{},"__metadata__":{}}`, 0), `header: "__metadata__" is there twice: need each name once`},
	{"metadata not strings", raw(`{"__metadata__":{"a":1}}`, 0), `header: __metadata__: found 1: need a string`},
	{"metadata no object", raw(`{"__metadata__":"a"}`, 0), `header: __metadata__: found a: need an object`},
	{"tensor no object", raw(`{"a":[]}`, 0), `header: tensor "a": found [: need an object`},
	{"unknown field", raw(`{"a":{"dtype":"U8","strides":[1]}}`, 0), `header: tensor "a": found a field "strides": need dtype, shape and data_offsets alone`},
	{"field in capitals", raw(`{"a":{"Dtype":"U8"}}`, 0), `header: tensor "a": found a field "Dtype": need dtype, shape and data_offsets alone`},
	{"no offsets", raw(`{"a":{"dtype":"U8","shape":[]}}`, 0), `header: tensor "a": found a part of dtype, shape and data_offsets: need all three`},
	{"unknown dtype", raw("{"+info("a", "F12", "[1]", 0, 1)+"}", 1), `header: tensor "a": found dtype "F12": need one that the format has`},
	{"dtype no string", raw(`{"a":{"dtype":8}}`, 0), `header: tensor "a": dtype: found 8: need a string`},
	{"negative shape", raw("{"+info("a", "U8", "[-1]", 0, 1)+"}", 1), `header: tensor "a": shape: found -1: need a whole number from 0 to 2^63-1`},
	{"fraction", raw("{"+info("a", "U8", "[1.0]", 0, 1)+"}", 1), `header: tensor "a": shape: found 1.0: need a whole number from 0 to 2^63-1`},
	{"shape of strings", raw("{"+info("a", "U8", `["1"]`, 0, 1)+"}", 1), `header: tensor "a": shape: found 1: need a whole number`},
	{"shape beyond 2^63", raw("{"+info("a", "U8", "[9223372036854775808]", 0, 1)+"}", 1), `header: tensor "a": shape: found 9223372036854775808: need a whole number from 0 to 2^63-1`},
	{"elements overflow", raw("{"+info("a", "U8", "[4294967296,4294967296]", 0, 0)+"}", 0), `header: tensor "a": found U8 [4294967296 4294967296]: need a size that is whole bytes and fits 63 bits`},
	{"bytes overflow", raw("{"+info("a", "F64", "[2305843009213693952]", 0, 0)+"}", 0), `header: tensor "a": found F64 [2305843009213693952]: need a size that is whole bytes and fits 63 bits`},
	{"half a byte", raw("{"+info("a", "F4", "[3]", 0, 1)+"}", 1), `header: tensor "a": found F4 [3]: need a size that is whole bytes and fits 63 bits`},
	{"too few bytes", raw("{"+info("a", "BF16", "[2,3]", 0, 10)+"}", 10), `header: tensor "a": found 10 bytes of data: need 12 for BF16 [2 3]`},
	{"offsets backwards", raw("{"+info("a", "U8", "[1]", 1, 0)+"}", 1), `header: tensor "a": found data_offsets [1 0]: need a begin and an end that is not before it`},
	{"one offset", raw(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0]}}`, 0), `header: tensor "a": found data_offsets [0]: need a begin and an end that is not before it`},
	{"beyond the data", raw("{"+info("a", "U8", "[3]", 0, 3)+"}", 2), `tensor "a": found data up to byte 3: need at most 2, the data section's size`},
	{"gap at the start", raw("{"+info("a", "U8", "[1]", 1, 2)+"}", 2), `tensor "a": found data from byte 1: need 0, the end of the tensor before it; there is a gap`},
	{"gap", raw("{"+info("a", "U8", "[1]", 0, 1)+","+info("b", "U8", "[1]", 2, 3)+"}", 3), `tensor "b": found data from byte 2: need 1, the end of the tensor before it; there is a gap`},
	{"overlap", raw("{"+info("a", "U8", "[2]", 0, 2)+","+info("b", "U8", "[2]", 1, 3)+"}", 3), `tensor "b": found data from byte 1: need 2, the end of the tensor before it; they overlap`},
	{"same bytes twice", raw("{"+info("a", "U8", "[2]", 0, 2)+","+info("b", "U8", "[2]", 0, 2)+"}", 2), `tensor "b": found data from byte 0: need 2, the end of the tensor before it; they overlap`},
	{"rest", raw("{"+info("a", "U8", "[1]", 0, 1)+"}", 3), `found 2 bytes after the last tensor: need the file to end there`},
}

func TestParseRefuses(t *testing.T) {
	for _, c := range malformed {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("x.safetensors", c.data)
			// What encoding/json adds after its invalid character is its own affair.
			if err == nil || !strings.HasPrefix(err.Error(), "x.safetensors: "+c.want) {
				t.Errorf("got  %v\nwant x.safetensors: %s", err, c.want)
			}
		})
	}
}

// wellFormed are files that are unusual and right.
var wellFormed = []struct {
	name  string
	data  []byte
	names string
}{
	{"no tensor", raw(`{}`, 0), "[]"},
	{"metadata alone", raw(`{"__metadata__":{"a":"b"}}`, 0), "[]"},
	{"padded", raw("{}   \n", 0), "[]"},
	{"scalar", raw("{"+info("a", "F32", "[]", 0, 4)+"}", 4), "[a]"},
	{"empty tensors", raw("{"+info("b", "F32", "[0]", 4, 4)+","+info("a", "F32", "[1]", 0, 4)+","+info("c", "U8", "[4,0]", 0, 0)+"}", 4), "[c a b]"},
	{"by offset", raw("{"+info("a", "U8", "[1]", 1, 2)+","+info("b", "U8", "[1]", 0, 1)+"}", 2), "[b a]"},
	{"four bits", raw("{"+info("a", "F4", "[2]", 0, 1)+"}", 1), "[a]"},
	{"metadata last", raw("{"+info("a", "U8", "[1]", 0, 1)+`,"__metadata__":{}}`, 1), "[a]"},
}

func TestParseAccepts(t *testing.T) {
	for _, c := range wellFormed {
		t.Run(c.name, func(t *testing.T) {
			f, err := Parse("x.safetensors", c.data)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(f.Names()); got != c.names {
				t.Errorf("names: got %s, want %s", got, c.names)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range malformed {
		f.Add(c.data)
	}
	for _, c := range wellFormed {
		f.Add(c.data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("fuzz", data)
		if err != nil {
			return
		}
		total := 0
		for _, name := range file.Names() {
			tensor, ok := file.Tensor(name)
			if !ok || tensor.Name != name {
				t.Fatalf("tensor %q: found %t, %q", name, ok, tensor.Name)
			}
			if size, _ := tensor.Dtype.size(tensor.Shape); size != len(tensor.Data) {
				t.Fatalf("tensor %q: %d bytes of %s %v", name, len(tensor.Data), tensor.Dtype, tensor.Shape)
			}
			total += len(tensor.Data)
			tensor.BF16()
			tensor.F64()
		}
		if header := binary.LittleEndian.Uint64(data); uint64(total)+lengthSize+header != uint64(len(data)) {
			t.Fatalf("%d bytes of tensors and %d of header in a file of %d", total, header, len(data))
		}
	})
}
