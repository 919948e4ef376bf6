// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"
)

// Python's safetensors reads what Write wrote, and what it writes of that is the same file.
func TestPythonRoundTrip(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	if err := exec.Command(python, "-c", "import numpy, ml_dtypes, safetensors").Run(); err != nil {
		t.Skip("no safetensors, numpy and ml_dtypes in Python")
	}
	ours, theirs := filepath.Join(t.TempDir(), "ours"), filepath.Join(t.TempDir(), "theirs")
	tensors := goldenTensors()
	if err := Write(ours, tensors, map[string]string{"format": "np"}); err != nil {
		t.Fatal(err)
	}
	const script = `
import sys, ml_dtypes
from safetensors.numpy import load_file, save_file
save_file(load_file(sys.argv[1]), sys.argv[2], metadata={"format": "np"})`
	if out, err := exec.Command(python, "-c", script, ours, theirs).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got, want := read(t, theirs), read(t, ours); !bytes.Equal(got, want) {
		t.Errorf("Python wrote\n%q\nwant\n%q", got, want)
	}
}
