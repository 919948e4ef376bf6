// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"strings"
	"testing"
)

// The launcher that has started a process last is believed, and the library must agree with it.
func TestCheckLauncher(t *testing.T) {
	names := []string{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}
	for _, c := range []struct {
		env        string
		rank, size int
		err        string
		slurm      bool
	}{
		{"", 0, 1, "", false},
		{"OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=2", 2, 4, "", false},
		{"OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=2", 0, 1, "rank 2 of 4", false},
		{"OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=2 PMI_SIZE=1 PMI_RANK=0", 2, 4, "", false}, // mpirun in a step of Slurm's
		{"PMI_SIZE=4 PMI_RANK=0", 0, 1, "rank 0 of 4", false},
		{"PMI_SIZE=4 PMI_RANK=1", 3, 4, "rank 1 of 4", false},
		{"PMIX_RANK=3", 0, 1, "started rank 3 (PMIX_RANK)", false},
		{"PMIX_RANK=3", 3, 4, "", false},
		{"PMIX_RANK=0 SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=0", 0, 1, "rank 0 of 8", true},
		{"SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=3", 0, 1, "", true},
		{"SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0", 0, 1, "", false},
	} {
		for _, name := range names {
			t.Setenv(name, "")
		}
		for _, pair := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(pair, "=")
			t.Setenv(name, value)
		}
		err := checkLauncher("a library", c.rank, c.size)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: rank %d of %d: error %v, want %q", c.env, c.rank, c.size, err, c.err)
		}
		if _, _, several := SlurmTask(); several != c.slurm {
			t.Errorf("%s: several tasks of Slurm: %v", c.env, several)
		}
	}
}
