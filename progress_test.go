// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit_test

import (
	"errors"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/internal/testgen"
)

// Loading and refreshing tell of every byte of the weights, on every backend that this machine runs.
func TestProgress(t *testing.T) {
	for _, shape := range []string{"tiny", "mid"} {
		s, err := testgen.Shape(shape)
		if err != nil {
			t.Fatal(err)
		}
		w := testgen.Weights(s, 1)
		for _, name := range backend.Names() {
			var last, calls int64
			progress := func(done, total int64) {
				if done <= last || total != 2*int64(s.Size()) { // on any goroutine, which t.Fatalf would end with the work undone
					t.Errorf("%s: %d of %d after %d", name, done, total, last)
				}
				last, calls = done, calls+1
			}
			l, err := samebit.New(s, &w, samebit.Options{Backend: name, Progress: progress})
			if need := (*backend.UnsupportedError)(nil); errors.As(err, &need) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, what := range []string{"load", "refresh"} {
				if last != 2*int64(s.Size()) || calls < int64(s.Experts) {
					t.Errorf("%s, %s: %d bytes in %d calls, want %d", name, what, last, calls, 2*s.Size())
				}
				if last, calls = 0, 0; what == "load" {
					if err := l.Refresh(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
