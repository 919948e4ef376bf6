// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package nccl joins processes that each have a GPU, as torchrun and Slurm start them. libnccl.so.2 is loaded at run time and moves
// bytes, from one rank to another: of its calls only those that send and receive are made, never one that reduces.
//
// The processes first meet at rank 0's address, with a token that they share; there they learn NCCL's unique id, and stay connected:
// a rank that fails tells the others why, one that leaves says so, and one that is gone is missed.
package nccl

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
)

// Env is NCCL's path or name, in place of libnccl.so.2.
const Env = "SAMEBIT_NCCL"

// Place is where a process stands among others, and where they meet.
type Place struct {
	Rank, Size, Local int    // Local: among the ranks of this machine
	GPU               int    // that it uses, among those that it sees; FromEnvironment leaves it to the caller
	Address           string // host:port, of rank 0
	Token             string // that all have, so that no stranger is taken for one of them
}

// Launched reports whether torchrun has started this process, as one of several.
func Launched() bool {
	return os.Getenv("WORLD_SIZE") != "" && os.Getenv("WORLD_SIZE") != "1" && os.Getenv("RANK") != ""
}

// everyRun is the run's id of every torchrun that was told none.
const everyRun = "none"

// defaultPort is where ranks meet that were told no port.
const defaultPort = 29501

// FromEnvironment reads what torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID) or srun
// (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, SLURM_LAUNCH_NODE_IPADDR, SLURM_JOB_ID) has told this process. torchrun itself listens
// at MASTER_PORT, so ranks meet one port above; SAMEBIT_PORT and SAMEBIT_TOKEN come before all.
func FromEnvironment() (Place, error) {
	var p Place
	var errs []error
	number := func(to *int, names ...string) {
		for _, name := range names {
			if v := os.Getenv(name); v != "" {
				n, err := strconv.Atoi(v)
				if err != nil || n < 0 {
					errs = append(errs, fmt.Errorf("nccl: found %s=%q: need a number", name, v))
				}
				*to = n
				return
			}
		}
		errs = append(errs, fmt.Errorf("nccl: found none of %v in the environment: need one, as torchrun and srun set them", names))
	}
	number(&p.Rank, "RANK", "SLURM_PROCID")
	number(&p.Size, "WORLD_SIZE", "SLURM_NTASKS")
	number(&p.Local, "LOCAL_RANK", "SLURM_LOCALID")
	port := defaultPort
	if os.Getenv("SAMEBIT_PORT") != "" {
		number(&port, "SAMEBIT_PORT")
	} else if os.Getenv("MASTER_PORT") != "" {
		number(&port, "MASTER_PORT")
		port++
	}
	host := cmp.Or(os.Getenv("MASTER_ADDR"), os.Getenv("SLURM_LAUNCH_NODE_IPADDR"))
	if host == "" {
		errs = append(errs, errors.New("nccl: found neither MASTER_ADDR nor SLURM_LAUNCH_NODE_IPADDR: need rank 0's address"))
	}
	run := os.Getenv("TORCHELASTIC_RUN_ID")
	if run == everyRun {
		run = ""
	}
	if p.Token = cmp.Or(os.Getenv("SAMEBIT_TOKEN"), run, os.Getenv("SLURM_JOB_ID")); p.Token == "" {
		errs = append(errs, errors.New("nccl: found no word that these ranks share and others have not: need torchrun's --standalone or --rdzv-id, "+
			"or SAMEBIT_TOKEN, the same on every rank"))
	}
	if p.Size > 0 && p.Rank >= p.Size {
		errs = append(errs, fmt.Errorf("nccl: found rank %d of %d: need less", p.Rank, p.Size))
	}
	p.Address = net.JoinHostPort(host, strconv.Itoa(port))
	return p, errors.Join(errs...)
}

// Error is a call of NCCL that failed.
type Error struct {
	Doing string
	Text  string // NCCL's
}

func (e *Error) Error() string { return fmt.Sprintf("nccl: %s: %s", e.Doing, e.Text) }
