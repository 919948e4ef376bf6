// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package patience

import (
	"testing"
	"time"
)

func TestOver(t *testing.T) {
	w := Begin(3 * time.Second)
	ago := func(d time.Duration) { w.looked = time.Now().Add(-d) }
	for i, d := range []time.Duration{time.Second / 2, time.Hour, 900 * time.Millisecond} { // stopped for an hour
		if ago(d); w.Over() {
			t.Fatalf("look %d: over after 2.4 s that count: need 3", i)
		}
	}
	if ago(700 * time.Millisecond); !w.Over() {
		t.Error("not over after 3.1 s")
	}
	if w.Again(); w.Over() {
		t.Error("over at once when begun again")
	}
}
