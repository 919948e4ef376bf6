// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"errors"
	"testing"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/internal/cpu/tcdot"
)

// Kernels of another law are refused with what was needed and what was had.
func TestAnotherLawIsRefused(t *testing.T) {
	was := prove
	defer func() { prove = was }()
	var proved *tcdot.ISA
	prove = func(s *tcdot.ISA) error {
		proved = s
		return &tcdot.LawError{By: "some code", Have: 0x3F800002, Want: 0x3F800001}
	}
	for _, k := range sets() {
		t.Setenv(Env, k.name())
		_, err := open(backend.Options{})
		var e *backend.UnsupportedError
		const want = "backend cpu: need floating point that follows the contract's law (R1): 3F800001, have some code that gives 3F800002"
		if !errors.As(err, &e) || e.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
		if proved != k.isa {
			t.Errorf("%s: proved other kernels", k.name())
		}
	}
}

// A worker's panic is the caller's, and the team goes on.
func TestPanicIsTheCallers(t *testing.T) {
	c := newCrew(3, sets()[0])
	defer c.close()
	for bad := range 3 {
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("worker %d: recovered %v, want boom", bad, p)
				}
			}()
			c.each(func(w *worker) {
				if w.index == bad {
					panic("boom")
				}
			})
		}()
	}
}
