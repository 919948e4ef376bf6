// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package mpi joins processes that mpirun, mpiexec or srun has started. It loads the machine's MPI library at run time: Open MPI,
// MPICH and its kin, or any library with MPI's standard ABI. Bytes are all it moves, from one rank to another.
//
// A rank that is gone is noticed: every rank sends the others a sign of life now and then, from a goroutine of its own, so also
// while it computes. A rank that fails says why, and one that leaves says so.
package mpi

import (
	"fmt"
	"os"
	"strconv"
)

// Env is a library's path or name, to be loaded in place of those that are looked for.
const Env = "SAMEBIT_MPI"

// Launched reports whether a launcher of MPI programs has started this process, as one of several.
func Launched() bool {
	for _, name := range []string{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS"} {
		if v := os.Getenv(name); v != "" && !(v == "1" && name != "PMIX_RANK") {
			return true
		}
	}
	return false
}

// SlurmTask is this process's number among several that srun has started, whether or not it has told them of MPI.
func SlurmTask() (task, tasks int, several bool) {
	task, noTask := strconv.Atoi(os.Getenv("SLURM_PROCID"))
	tasks, noTasks := strconv.Atoi(os.Getenv("SLURM_STEP_NUM_TASKS"))
	return task, tasks, noTask == nil && noTasks == nil && tasks > 1
}

// told is what launchers say of size and rank, in the order in which they are believed: the one that started this process last comes first.
// Slurm's own count is that of the step whose ranks PMIx numbers.
var told = []struct{ size, rank string }{
	{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
	{"PMI_SIZE", "PMI_RANK"},
	{"SLURM_STEP_NUM_TASKS", "PMIX_RANK"},
	{"", "PMIX_RANK"},
}

// checkLauncher holds the library's rank and size against the launcher's. A library of another kind than the launcher's does not find
// the other processes, and takes each for a world of its own.
func checkLauncher(library string, rank, size int) error {
	for _, v := range told {
		n, noSize := strconv.Atoi(os.Getenv(v.size))
		r, noRank := strconv.Atoi(os.Getenv(v.rank))
		if noRank != nil || noSize != nil && v.size != "" {
			continue
		}
		switch {
		case noSize == nil && (n != size || r != rank):
			return fmt.Errorf("mpi: the launcher started rank %d of %d (%s, %s), and to %s it is rank %d of %d: need the launcher's own library, by its path in %s",
				r, n, v.rank, v.size, library, rank, size, Env)
		case noSize != nil && r != rank:
			return fmt.Errorf("mpi: the launcher started rank %d (%s), and to %s it is rank %d of %d: need the launcher's own library, by its path in %s",
				r, v.rank, library, rank, size, Env)
		}
		return nil
	}
	return nil
}

// LocalRank is this process's number among those of its machine, as the launcher says; 0 where it does not.
func LocalRank() int {
	for _, name := range []string{"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "SLURM_LOCALID"} {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
	}
	return 0
}

// Error is a call of the library that failed.
type Error struct {
	Doing string
	Text  string // the library's
}

func (e *Error) Error() string { return fmt.Sprintf("mpi: %s: %s", e.Doing, e.Text) }
