// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestWitness has the second witness, a program in Python written from the text of the rules, recompute the hardware's
// results, the golden cases and two layers. It needs python3 with numpy in PATH and is skipped without, unless
// SAMEBIT_REQUIRE names python.
func TestWitness(t *testing.T) {
	if err := exec.Command("python3", "-c", "import numpy").Run(); err != nil {
		if strings.Contains(os.Getenv("SAMEBIT_REQUIRE"), "python") {
			t.Fatalf("python3 with numpy: %v; SAMEBIT_REQUIRE demands it", err)
		}
		t.Skipf("python3 with numpy: %v", err)
	}
	runs := [][]string{{"vectors", "testdata/tc16-h200.safetensors"}, {"golden", goldenFile}}
	for _, name := range vectors {
		folder := filepath.Join(checkpoints, name)
		runs = append(runs, []string{"layer", folder, strconv.Itoa(testLayer), filepath.Join(folder, testIO), filepath.Join("testdata", name+".safetensors")})
	}
	for _, args := range runs {
		out, err := exec.Command("python3", append([]string{"testdata/witness.py"}, args...)...).CombinedOutput()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out)
			continue
		}
		t.Logf("%s: %s", strings.Join(args, " "), lines[len(lines)-1])
	}
}
