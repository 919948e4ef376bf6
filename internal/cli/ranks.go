// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/samebit/samebit/gate"
	"github.com/samebit/samebit/internal/mpi"
	"github.com/samebit/samebit/parallel"
)

// rankFlags say what ranks a layer is spread over.
type rankFlags struct {
	TP int `name:"tp" default:"1" placeholder:"N" help:"Tensor-parallel ranks, which slice each expert. Changes no bit." json:"tp"`
	EP int `name:"ep" placeholder:"N" help:"Expert-parallel ranks, which share the experts; all that there are where mpirun has started this, else 1. Changes no bit." json:"ep"`
}

// join joins the ranks that the flags ask for: goroutines of this process or, where mpirun or srun has started several, processes.
// There are none for one rank.
func (f *rankFlags) join(e *env) (ranks []*parallel.Rank, err error) {
	if f.TP < 1 || f.EP < 0 {
		return nil, fmt.Errorf("--tp %d, --ep %d: need at least 1, and for --ep 0 for all that there are", f.TP, f.EP)
	}
	if !mpi.Launched() {
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
	world, err := mpi.Open()
	if err != nil {
		return nil, err
	}
	group := parallel.NewGroup(world)
	e.rank, e.ranks = world.Rank(), world.Size()
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
		f.EP = max(1, world.Size()/f.TP)
	}
	rank, err := parallel.Join(group, parallel.Grid{TP: f.TP, EP: f.EP})
	if err != nil {
		return nil, err
	}
	return []*parallel.Rank{rank}, nil
}

const mostRanks = 64
