// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit_test

import (
	"errors"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/internal/testgen"
)

// A workspace is for GPUs: other backends say so.
func TestWorkspaceNeedsADevice(t *testing.T) {
	s, err := testgen.Shape("tiny")
	if err != nil {
		t.Fatal(err)
	}
	w := testgen.Weights(s, 1)
	for _, backend := range []string{"cpu", "ref"} {
		l, err := samebit.New(s, &w, samebit.Options{Backend: backend})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.NewWorkspace(8); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: got %v, want errors.ErrUnsupported", backend, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
