// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bits

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/samebit/samebit/checkpoint/safetensors"
)

// element is how the bits of one element are read.
type element struct {
	kind     kind
	size     int // in bytes
	mantissa int // a float's bits below the exponent
}

type kind int

const (
	unsigned kind = iota + 1
	signed
	float
)

// elements are the dtypes that this package can read; others it refuses, since it could not see a NaN in them.
var elements = map[safetensors.Dtype]element{
	"BF16": {float, 2, 7}, "F16": {float, 2, 10}, "F32": {float, 4, 23}, "F64": {float, 8, 52},
	"I8": {signed, 1, 0}, "I16": {signed, 2, 0}, "I32": {signed, 4, 0}, "I64": {signed, 8, 0},
	"U8": {unsigned, 1, 0}, "U16": {unsigned, 2, 0}, "U32": {unsigned, 4, 0}, "U64": {unsigned, 8, 0}, "BOOL": {unsigned, 1, 0},
}

// at is the bits of element i.
func (e element) at(data []byte, i int) uint64 {
	switch data = data[i*e.size:]; e.size {
	case 1:
		return uint64(data[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(data))
	case 4:
		return uint64(binary.LittleEndian.Uint32(data))
	default:
		return binary.LittleEndian.Uint64(data)
	}
}

// sign is the element's highest bit.
func (e element) sign() uint64 { return 1 << (8*e.size - 1) }

// infinity is +Inf: an exponent of ones above a mantissa of zeros.
func (e element) infinity() uint64 { return e.sign() - 1<<e.mantissa }

// finite reports whether v is neither an infinity nor a NaN.
func (e element) finite(v uint64) bool { return e.kind != float || v&e.infinity() != e.infinity() }

// nan reports whether v is a NaN.
func (e element) nan(v uint64) bool { return e.kind == float && v&^e.sign() > e.infinity() }

// allFinite is finite for all elements of data, a word at a time: an exponent of ones, and no other, carries into the sign's
// place when one is added to it.
func (e element) allFinite(data []byte) bool {
	if e.kind != float {
		return true
	}
	lanes := ^uint64(0) / (e.sign()<<1 - 1) // a one at the bottom of each element of the word
	exponents, one, carries := lanes*e.infinity(), lanes<<e.mantissa, lanes*e.sign()
	carry := func(i int) uint64 { return binary.LittleEndian.Uint64(data[i:])&exponents + one }
	i := 0
	for ; i+32 <= len(data); i += 32 {
		if (carry(i)|carry(i+8)|carry(i+16)|carry(i+24))&carries != 0 {
			return false
		}
	}
	for i /= e.size; i < len(data)/e.size; i++ {
		if !e.finite(e.at(data, i)) {
			return false
		}
	}
	return true
}

// distance is how many steps from one bit pattern to the next lie between a and b in the order of their values, where -0 and
// +0 are neighbours. For floats it is the distance in units of the last place.
func (e element) distance(a, b uint64) uint64 {
	a, b = e.order(a), e.order(b)
	return max(a, b) - min(a, b)
}

// order maps an element to a number that rises with its value.
func (e element) order(v uint64) uint64 {
	switch {
	case e.kind == float && v&e.sign() != 0:
		return e.sign() - 1 - v&^e.sign()
	case e.kind == unsigned:
		return v
	default:
		return v ^ e.sign()
	}
}

// text is an element in hex and decimal: 3F80 (1).
func (e element) text(v uint64) string {
	return fmt.Sprintf("%0*X (%s)", 2*e.size, v, e.decimal(v))
}

func (e element) decimal(v uint64) string {
	switch e.kind {
	case unsigned:
		return strconv.FormatUint(v, 10)
	case signed:
		shift := 64 - 8*e.size
		return strconv.FormatInt(int64(v<<shift)>>shift, 10)
	case float:
		return strconv.FormatFloat(e.value(v), 'g', -1, max(32, 8*e.size))
	}
	panic("bits: no such kind")
}

// value is a float's exact value.
func (e element) value(v uint64) float64 {
	magnitude := v &^ e.sign()
	exponent, fraction := int(magnitude>>e.mantissa), magnitude&(1<<e.mantissa-1)
	bias := int(e.infinity()>>e.mantissa) / 2
	var f float64
	switch {
	case e.nan(v):
		return math.NaN()
	case magnitude == e.infinity():
		f = math.Inf(1)
	case exponent == 0:
		f = math.Ldexp(float64(fraction), 1-bias-e.mantissa)
	default:
		f = math.Ldexp(float64(fraction|1<<e.mantissa), exponent-bias-e.mantissa)
	}
	if v&e.sign() != 0 {
		return -f // for zero too: f is a variable
	}
	return f
}
