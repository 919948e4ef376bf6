// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"fmt"
	"unsafe"

	"github.com/samebit/samebit/contract"
)

// Tensor is one tensor of a file. Data is the file's own bytes: do not write to it.
type Tensor struct {
	Name  string
	Dtype Dtype
	Shape []int
	Data  []byte
}

// Element is a Go type that one of the format's types is, bit for bit.
type Element interface {
	contract.BF16 | int32 | float32 | float64
}

// dtypeOf is the format's name for T.
func dtypeOf[T Element]() Dtype {
	switch any(*new(T)).(type) {
	case contract.BF16:
		return BF16
	case int32:
		return I32
	case float32:
		return F32
	default:
		return F64
	}
}

// BF16 gives the elements of a BF16 tensor, in row-major order. This and the other views share Data where it is aligned, and copy
// it where not; the error, for another dtype, names the tensor, its dtype and the one needed.
func (t Tensor) BF16() ([]contract.BF16, error) { return view[contract.BF16](t) }

// F32 gives the elements of an F32 tensor.
func (t Tensor) F32() ([]float32, error) { return view[float32](t) }

// F64 gives the elements of an F64 tensor.
func (t Tensor) F64() ([]float64, error) { return view[float64](t) }

// I32 gives the elements of an I32 tensor.
func (t Tensor) I32() ([]int32, error) { return view[int32](t) }

func view[T Element](t Tensor) ([]T, error) {
	if need := dtypeOf[T](); t.Dtype != need {
		return nil, fmt.Errorf("tensor %q: found dtype %s: need %s", t.Name, t.Dtype, need)
	}
	first := unsafe.SliceData(t.Data)
	n := len(t.Data) / int(unsafe.Sizeof(*new(T)))
	if uintptr(unsafe.Pointer(first))%unsafe.Alignof(*new(T)) == 0 {
		return unsafe.Slice((*T)(unsafe.Pointer(first)), n), nil
	}
	elements := make([]T, n)
	copy(Bytes(elements), t.Data)
	return elements, nil
}

// Bytes gives the memory of v as bytes, without a copy.
func Bytes[T Element](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(*new(T))))
}
