// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/samebit/samebit/gate"
	"github.com/samebit/samebit/internal/mpi"
	"github.com/samebit/samebit/internal/nccl"
	"github.com/samebit/samebit/internal/patience"
	"github.com/samebit/samebit/parallel"
)

// rankFlags say what ranks a layer is spread over.
type rankFlags struct {
	TP   int    `name:"tp" default:"1" placeholder:"N" help:"Tensor-parallel ranks, which slice each expert. Changes no bit." json:"tp"`
	EP   int    `name:"ep" placeholder:"N" help:"Expert-parallel ranks, which share the experts; where processes are the ranks, all that --tp leaves, else 1. Changes no bit." json:"ep"`
	Over string `enum:"auto,local,mpi,nccl" default:"auto" help:"What ranks are, and what carries bytes between them: local, goroutines of this process; mpi, processes of mpirun or srun; nccl, processes of torchrun or srun with a GPU each; auto, what has started this. Changes no bit." json:"over"`

	Patience time.Duration `name:"patience" default:"10m" placeholder:"TIME" help:"How long a rank waits for another that lives, but does not call what it has called; then all end with an error. (One that is dead or stopped is missed within 15s.)" json:"-"`
}

const mostRanks = 64 // goroutines

const stoppedEarly = "stopped by the launcher before all ranks had met: another was refused or has died, or the job was cancelled"

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

// alike has all processes say what they have, where each was told by itself: another would end in the midst of the work, or not show.
func (e *env) alike(rank *parallel.Rank, what, mine string) error {
	if rank == nil || e.ranks == 0 { // the ranks of one process were told once
		return nil
	}
	return rank.Compare(what, mine)
}

// first is the first of this process's ranks, nil where there is none.
func first(ranks []*parallel.Rank) *parallel.Rank {
	if len(ranks) == 0 {
		return nil
	}
	return ranks[0]
}

// join joins the ranks that the flags ask for. There are none for one rank.
func (f *rankFlags) join(e *env) ([]*parallel.Rank, error) {
	if f.TP < 1 || f.EP < 0 {
		return nil, fmt.Errorf("--tp %d, --ep %d: need at least 1, and for --ep 0 for all that there are", f.TP, f.EP)
	}
	if f.Patience <= 0 {
		return nil, fmt.Errorf("--patience %v: need more than 0", f.Patience)
	}
	limits := patience.Defaults()
	limits.Call = f.Patience
	switch f.over() {
	case "mpi":
		e.stoppedBecause(stoppedEarly)
		world, err := mpi.Open(limits)
		if err != nil {
			return nil, err
		}
		e.device = deviceOf(mpi.LocalRank())
		return f.processes(e, world)
	case "nccl":
		place, err := nccl.FromEnvironment()
		if err != nil {
			return nil, err
		}
		place.GPU = deviceOf(place.Local)
		e.stoppedBecause(stoppedEarly)
		world, err := nccl.Open(place, limits)
		if err != nil {
			return nil, err
		}
		e.device = place.GPU
		return f.processes(e, world)
	}
	if task, tasks, several := mpi.SlurmTask(); several && f.Over == "auto" {
		return nil, fmt.Errorf("srun started this as task %d of %d, and told it of no MPI: need srun --mpi=pmix or pmi2, or --over nccl, or --over local for %d programs of their own",
			task, tasks, tasks)
	}
	f.EP = max(f.EP, 1)
	if n := float64(f.TP) * float64(f.EP); n > mostRanks { // too large a number, it may be, for an int
		return nil, fmt.Errorf("--tp %d, --ep %d: found %.0f ranks: need at most %d in one process", f.TP, f.EP, n, mostRanks)
	}
	grid := parallel.Grid{TP: f.TP, EP: f.EP}
	if grid.Ranks() == 1 {
		return nil, nil
	}
	return gate.JoinAll(parallel.LocalWith(grid.Ranks(), f.Patience), grid)
}

// deviceOf is the number of the GPU of a machine's rank among those that it sees: its own number, or the first where the launcher
// shows each rank one alone, as srun --gpus-per-task does.
func deviceOf(local int) int {
	if seen := os.Getenv("CUDA_VISIBLE_DEVICES"); seen != "" && !strings.Contains(seen, ",") {
		return 0
	}
	return local
}

// processes joins a grid of processes, of which this is one.
func (f *rankFlags) processes(e *env, link parallel.Link) ([]*parallel.Rank, error) {
	group := parallel.NewGroup(link)
	e.rank, e.ranks = link.Rank(), link.Size()
	e.leave = func(err error) error {
		if err != nil {
			group.Abort(err)
		}
		return group.Close()
	}
	e.stoppedBecause(fmt.Sprintf("rank %d of %d: stopped by the launcher: another rank has died, or the job was cancelled", e.rank, e.ranks))
	if f.EP == 0 {
		f.EP = max(1, link.Size()/f.TP)
	}
	rank, err := parallel.Join(group, parallel.Grid{TP: f.TP, EP: f.EP})
	if err != nil {
		return nil, err
	}
	return []*parallel.Rank{rank}, nil
}

// stoppedBecause is what the launcher's signal means, which stops the other processes when one has died.
func (e *env) stoppedBecause(why string) { e.whyStopped.Store(&why) }
