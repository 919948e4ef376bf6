// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

// A rank has the GPU of its number on its machine, unless it sees one alone.
func TestDeviceOf(t *testing.T) {
	for seen, want := range map[string]int{"": 3, "0,1,2,3": 3, "5": 0, "GPU-8f6d": 0} {
		t.Setenv("CUDA_VISIBLE_DEVICES", seen)
		if got := deviceOf(3); got != want {
			t.Errorf("rank 3 sees %q: GPU %d, want %d", seen, got, want)
		}
	}
}
