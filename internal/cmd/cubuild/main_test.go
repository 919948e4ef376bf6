// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"os"
	"strings"
	"testing"

	"github.com/samebit/samebit/internal/cuda/image"
)

// The image that is committed was made with these flags; and where the same compiler is at hand, it makes the same bytes.
func TestRebuild(t *testing.T) {
	lock, err := image.ReadLock()
	if err != nil {
		t.Fatal(err)
	}
	if lock.Flags != flags {
		t.Errorf("image.lock has flags %s, cubuild %s", lock.Flags, flags)
	}
	nvcc := cmp.Or(os.Getenv("SAMEBIT_NVCC"), "nvcc")
	if have, err := version(nvcc); err != nil || have != lock.Compiler {
		if strings.Contains(os.Getenv("SAMEBIT_REQUIRE"), "nvcc") {
			t.Fatalf("have %s %v: need %s", have, err, lock.Compiler)
		}
		t.Skipf("have %s %v: need %s", have, err, lock.Compiler)
	}
	if err := run(nvcc, "", true); err != nil {
		t.Error(err)
	}
}

func TestGoName(t *testing.T) {
	if got := goName("experts_gate_up_fwd_1x64x1_bf16"); got != "ExpertsGateUpFwd1x64x1Bf16" {
		t.Errorf("got %s", got)
	}
}

func TestSpilled(t *testing.T) {
	for line, want := range map[string]bool{
		"    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads":  false,
		"    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads":  true,
		"    0 bytes stack frame, 10 bytes spill stores, 0 bytes spill loads": true,
	} {
		if spilled.MatchString(line) != want {
			t.Errorf("%q: want %t", line, want)
		}
	}
}
