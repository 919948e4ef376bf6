// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package safetensors

// Dtype is an element type, by the name that the format gives it.
type Dtype string

// The element types that a [Tensor] has a typed view of.
const (
	BF16 Dtype = "BF16"
	I32  Dtype = "I32"
	F32  Dtype = "F32"
	F64  Dtype = "F64"
)

// dtypes are all that the format has, with their bits. The order is the reference implementation's, by rising alignment:
// a writer lays tensors out from the last to the first, so that each is aligned if the data section is.
var dtypes = []struct {
	dtype Dtype
	bits  int
}{
	{"BOOL", 8},
	{"F4", 4}, {"F6_E2M3", 6}, {"F6_E3M2", 6},
	{"U8", 8}, {"I8", 8},
	{"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
	{"I16", 16}, {"U16", 16}, {"F16", 16}, {BF16, 16},
	{I32, 32}, {"U32", 32}, {F32, 32},
	{"C64", 64}, {F64, 64}, {"I64", 64}, {"U64", 64},
}

// rank is d's place in dtypes, -1 where the format has no such type.
func (d Dtype) rank() int {
	for i := range dtypes {
		if dtypes[i].dtype == d {
			return i
		}
	}
	return -1
}

// Bits is the size of one element in bits, 0 where the format has no such type.
func (d Dtype) Bits() int {
	if i := d.rank(); i >= 0 {
		return dtypes[i].bits
	}
	return 0
}

// elements is the product of a shape, and whether it is not negative and fits an int.
func elements(shape []int) (int, bool) {
	n := 1
	for _, d := range shape {
		if d < 0 || (d > 0 && n > maxInt/d) {
			return 0, false
		}
		n *= d
	}
	return n, true
}

// size is the number of bytes of a tensor, and whether it is a whole number that fits an int.
func (d Dtype) size(shape []int) (int, bool) {
	n, ok := elements(shape)
	bits := d.Bits()
	if !ok || bits == 0 || n > maxInt/bits || n*bits%8 != 0 {
		return 0, false
	}
	return n * bits / 8, true
}

const maxInt = int(^uint(0) >> 1)
