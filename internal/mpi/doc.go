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
