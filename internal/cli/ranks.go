// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/samebit/samebit/gate"
	"github.com/samebit/samebit/internal/mpi"
	"github.com/samebit/samebit/internal/nccl"
	"github.com/samebit/samebit/parallel"
)

// rankFlags say what ranks a layer is spread over.
type rankFlags struct {
	TP   int    `name:"tp" default:"1" placeholder:"N" help:"Tensor-parallel ranks, which slice each expert. Changes no bit." json:"tp"`
	EP   int    `name:"ep" placeholder:"N" help:"Expert-parallel ranks, which share the experts; where processes are the ranks, all that --tp leaves, else 1. Changes no bit." json:"ep"`
	Over string `enum:"auto,local,mpi,nccl" default:"auto" help:"What ranks are, and what carries bytes between them: local, goroutines of this process; mpi, processes of mpirun or srun; nccl, processes of torchrun or srun with a GPU each; auto, what has started this. Changes no bit." json:"over"`
}

const mostRanks = 64 // goroutines

// over is what carries bytes between ranks.
func (f *rankFlags) over() string {
	switch {
	case f.Over != "auto":
		return f.Over
	case mpi.Launched():
		return "mpi"
	case nccl.Launched():
		return "nccl"
	}
	return "local"
}

// join joins the ranks that the flags ask for. There are none for one rank.
func (f *rankFlags) join(e *env) ([]*parallel.Rank, error) {
	if f.TP < 1 || f.EP < 0 {
		return nil, fmt.Errorf("--tp %d, --ep %d: need at least 1, and for --ep 0 for all that there are", f.TP, f.EP)
	}
	switch f.over() {
	case "mpi":
		world, err := mpi.Open()
		if err != nil {
			return nil, err
		}
		e.device = mpi.LocalRank()
		return f.processes(e, world)
	case "nccl":
		place, err := nccl.FromEnvironment()
		if err != nil {
			return nil, err
		}
		world, err := nccl.Open(place)
		if err != nil {
			return nil, err
		}
		e.device = place.Local
		return f.processes(e, world)
	}
	f.EP = max(f.EP, 1)
	grid := parallel.Grid{TP: f.TP, EP: f.EP}
	if grid.Ranks() == 1 {
		return nil, nil
	}
	if grid.Ranks() > mostRanks {
		return nil, fmt.Errorf("--tp %d, --ep %d: found %d ranks: need at most %d in one process", f.TP, f.EP, grid.Ranks(), mostRanks)
	}
	return gate.LocalRanks(grid)
}

// processes joins a grid of processes, of which this is one.
func (f *rankFlags) processes(e *env, link parallel.Link) ([]*parallel.Rank, error) {
	group := parallel.NewGroup(link)
	e.rank, e.ranks = link.Rank(), link.Size()
	e.leave = func(err error) {
		if err != nil {
			group.Abort(err)
		}
		group.Close()
	}
	// The launcher stops the others when a rank has died.
	why := fmt.Sprintf("rank %d of %d: stopped by the launcher: another rank has died, or the job was cancelled", e.rank, e.ranks)
	e.whyStopped.Store(&why)
	if f.EP == 0 {
		f.EP = max(1, link.Size()/f.TP)
	}
	rank, err := parallel.Join(group, parallel.Grid{TP: f.TP, EP: f.EP})
	if err != nil {
		return nil, err
	}
	return []*parallel.Rank{rank}, nil
}
