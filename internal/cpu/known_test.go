// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"errors"
	"math"
	"testing"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
)

func TestKnownAnswers(t *testing.T) {
	for _, x := range known {
		if have := math.Float32bits(contract.TCDot(x.a, x.b)); have != x.want {
			t.Errorf("contract: %08X, want %08X", have, x.want)
		}
	}
	for _, k := range sets() {
		if err := proveLaw(k); err != nil {
			t.Error(err)
		}
	}
}

// Another answer is refused with what was needed and what was had.
func TestAnotherLawIsRefused(t *testing.T) {
	was := known[0].want
	defer func() { known[0].want = was }()
	known[0].want++
	var e *backend.UnsupportedError
	if _, err := open(backend.Options{}); !errors.As(err, &e) || e.Backend != "cpu" {
		t.Errorf("error %v, want an UnsupportedError of cpu", err)
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
