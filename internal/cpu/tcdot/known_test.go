// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package tcdot

import (
	"errors"
	"math"
	"testing"
	"unsafe"

	"github.com/samebit/samebit/contract"
)

// law is the sum of groups of so many products, each cut by cut to a multiple of 2^(M-bits), from an accumulator that is one of the
// terms; the sum is cut to FP32 toward zero. It is exact for known.
func law(group, bits int, cut func(float64) float64) func(a, b []contract.BF16) float32 {
	return func(a, b []contract.BF16) float32 {
		acc := 0.0
		for at := 0; at < len(a); at += group {
			end := min(at+group, len(a))
			scale := -1000
			if acc != 0 {
				scale = math.Ilogb(acc)
			}
			for i := at; i < end; i++ {
				if x, y := float64(a[i].Float32()), float64(b[i].Float32()); x != 0 && y != 0 {
					scale = max(scale, math.Ilogb(x)+math.Ilogb(y))
				}
			}
			sum := cut(math.Ldexp(acc, bits-scale))
			for i := at; i < end; i++ {
				sum += cut(math.Ldexp(float64(a[i].Float32())*float64(b[i].Float32()), bits-scale))
			}
			acc = 0
			if sum != 0 {
				step := math.Ilogb(sum) - 23
				acc = math.Ldexp(math.Trunc(math.Ldexp(sum, -step)), step+scale-bits)
			}
		}
		return float32(acc)
	}
}

// TestKnownAnswersBind: the law gives the known answers, and every other plausible one misses one.
func TestKnownAnswersBind(t *testing.T) {
	inOrder := func(a, b []contract.BF16) (sum float32) {
		for i := range a {
			sum += float32(a[i].Float32() * b[i].Float32())
		}
		return sum
	}
	exact := func(a, b []contract.BF16) float32 {
		sum := 0.0
		for i := range a {
			sum += float64(a[i].Float32()) * float64(b[i].Float32())
		}
		return float32(sum)
	}
	segments := func(a, b []contract.BF16) float32 { return contract.TCDotSegments(a, b, group) }
	for name, of := range map[string]func(a, b []contract.BF16) float32{
		"":                        law(16, 25, math.Trunc),
		"in order":                inOrder,
		"exact":                   exact,
		"groups from +0":          segments,
		"groups of 4":             law(4, 25, math.Trunc),
		"groups of 8":             law(8, 25, math.Trunc),
		"groups of 32":            law(32, 25, math.Trunc),
		"23 bits":                 law(16, 23, math.Trunc),
		"24 bits":                 law(16, 24, math.Trunc),
		"26 bits":                 law(16, 26, math.Trunc),
		"terms toward -infinity":  law(16, 25, math.Floor),
		"terms to nearest":        law(16, 25, math.Round),
		"terms to nearest, even":  law(16, 25, math.RoundToEven),
		"terms away from nothing": law(16, 25, func(x float64) float64 { return math.Copysign(math.Ceil(math.Abs(x)), x) }),
	} {
		misses := 0
		for _, x := range known {
			if x.segment == 0 && math.Float32bits(of(x.a, x.b)) != x.want {
				misses++
			}
		}
		if (misses > 0) != (name != "") {
			t.Errorf("law %q misses %d known answers", name, misses)
		}
	}
}

func TestKnownAnswers(t *testing.T) {
	for _, isa := range rungs() {
		if err := Prove(isa); err != nil {
			t.Errorf("%s: %v", isa.name, err)
		}
	}
}

// TestAnotherAnswerIsRefused: the contract's own code, which a compiler may have spoilt, is asked first, and for every answer.
func TestAnotherAnswerIsRefused(t *testing.T) {
	for i := range known {
		known[i].want ^= 1
		var e *LawError
		if err := Prove(Go); !errors.As(err, &e) || *e != (LawError{"the contract's code", known[i].want ^ 1, known[i].want}) {
			t.Errorf("known answer %d: error %v, want a LawError of the contract's code", i, err)
		}
		known[i].want ^= 1
	}
}

// TestALieIsRefused: each kernel by itself, among kernels that are right, gives one bit that is not, and is refused.
func TestALieIsRefused(t *testing.T) {
	spoil := func(f *float32) { *f = math.Float32frombits(math.Float32bits(*f) ^ 1) }
	for _, isa := range rungs() {
		if isa.lanes == 0 {
			continue
		}
		lies := map[string]func(s *ISA){
			"core": func(s *ISA) {
				s.core = func(panel, x *byte, xg int, acc *float32, n, ng int, bad *byte) {
					isa.core(panel, x, xg, acc, n, ng, bad)
					spoil(&unsafe.Slice(acc, n*isa.lanes)[n*isa.lanes-1])
				}
			},
			"core of two groups": func(s *ISA) {
				s.core = func(panel, x *byte, xg int, acc *float32, n, ng int, bad *byte) {
					if isa.core(panel, x, xg, acc, n, ng, bad); ng > 1 {
						spoil(acc)
					}
				}
			},
			"core of many rows": func(s *ISA) {
				s.core = func(panel, x *byte, xg int, acc *float32, n, ng int, bad *byte) {
					if isa.core(panel, x, xg, acc, n, ng, bad); n > 16 {
						spoil(acc)
					}
				}
			},
			"transpose": func(s *ISA) {
				s.transpose = func(w *uint16, stride int, buf *uint32) {
					isa.transpose(w, stride, buf)
					*buf ^= 1
				}
			},
			"tile": func(s *ISA) {
				s.tile = func(src *uint32, stride int, dst *uint32, apart int) {
					isa.tile(src, stride, dst, apart)
					*dst ^= 1
				}
			},
			"expandPairs": func(s *ISA) {
				s.expandPairs = func(buf *uint32, np int, panel *byte, scale, base uint32, next uintptr, stride int) {
					isa.expandPairs(buf, np, panel, scale, base, next, stride)
					*panel ^= 255 // whose lowest byte an FP32 of a BF16 has not
				}
			},
			"expandPairs of packed rows": func(s *ISA) {
				s.expandPairs = func(buf *uint32, np int, panel *byte, scale, base uint32, next uintptr, stride int) {
					if isa.expandPairs(buf, np, panel, scale, base, next, stride); stride == 64 {
						*panel ^= 255
					}
				}
			},
			"expandPairs of rows that are not packed": func(s *ISA) {
				s.expandPairs = func(buf *uint32, np int, panel *byte, scale, base uint32, next uintptr, stride int) {
					if isa.expandPairs(buf, np, panel, scale, base, next, stride); stride != 64 { // which is that of packed ones
						*panel ^= 255
					}
				}
			},
			"expandRows of columns that are not packed": func(s *ISA) {
				s.expandRows = func(w *uint16, stride, ahead, nk int, panel *byte, scale, base uint32) {
					if isa.expandRows(w, stride, ahead, nk, panel, scale, base); ahead != 0 { // packed ones have none
						*panel ^= 255
					}
				}
			},
			"expandRows": func(s *ISA) {
				s.expandRows = func(w *uint16, stride, ahead, nk int, panel *byte, scale, base uint32) {
					isa.expandRows(w, stride, ahead, nk, panel, scale, base)
					*panel ^= 255
				}
			},
		}
		for i, name := range []string{"finish set", "finish add", "finish set, zipped", "finish add, zipped"} {
			lies[name] = func(s *ISA) {
				s.finish[i] = func(acc, scale, out *float32, stride, n int) {
					isa.finish[i](acc, scale, out, stride, n)
					spoil(out)
				}
			}
		}
		if isa.direct != nil {
			for name, when := range map[string]func(groups, rows int) bool{
				"direct": func(int, int) bool { return true }, "direct of one row": func(_, rows int) bool { return rows == 1 },
				"direct of several rows": func(_, rows int) bool { return rows > 1 },
				"direct of two groups":   func(groups, _ int) bool { return groups == 2 },
				"direct of three groups": func(groups, _ int) bool { return groups == 3 },
			} {
				lies[name] = func(s *ISA) {
					s.direct = func(w *uint32, ng int, x *byte, xg int, acc *float32, n int) bool {
						doubt := isa.direct(w, ng, x, xg, acc, n)
						if when(ng, n) {
							spoil(acc)
						}
						return doubt
					}
				}
			}
		}
		for name, lie := range lies {
			s := *isa
			lie(&s)
			var e *LawError
			if err := Prove(&s); !errors.As(err, &e) || e.Have == e.Want || e.By != "code of "+s.name {
				t.Errorf("%s: %s lies: error %v, want a LawError of it", isa.name, name, err)
			}
		}
	}
}
