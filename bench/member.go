// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/binary"
	"time"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/parallel"
)

// member is the layer on one of this process's ranks, or whole.
type member struct {
	*samebit.Layer
	rank  *parallel.Rank // nil for a layer that is whole
	grads *gradients     // of the pass that was last made ready for
}

// column is this member's tokens among n, and those of all.
func (m *member) column(n int) (mine contract.Range, all []contract.Range) {
	if m.rank == nil {
		return contract.Range{To: n}, nil
	}
	all = m.rank.Grid.Columns(0, n)
	return all[m.rank.Column()], all
}

// run is one run: on ranks, of this one's part of the tokens, from when all are there to when all have done theirs. All ranks get the
// first one's time.
func (m *member) run(p Pass, x, dy []samebit.BF16) (Run, error) {
	h := m.Shape().Hidden
	mine, all := m.column(len(x) / h)
	x, dy = x[mine.From*h:mine.To*h], dy[mine.From*h:mine.To*h]
	var options []samebit.ForwardOption
	if p != Forward {
		options = append(options, samebit.Train)
	}
	if err := m.together(); err != nil {
		return Run{}, err
	}
	start := time.Now()
	out, err := m.Forward(x, options...)
	if err == nil && p != Forward {
		err = m.backward(out.Tape, dy)
	}
	if err == nil {
		err = m.together()
	}
	r := Run{Time: time.Since(start)}
	if err != nil {
		return r, err
	}
	if m.rank != nil {
		counts := make([]int, len(all))
		for i, c := range all {
			counts[i] = c.Len() * m.Shape().TopK
		}
		if out.IDs, err = parallel.GatherRows(m.rank, out.IDs, counts); err != nil {
			return r, err
		}
		if r.Time, err = m.first(r.Time); err != nil {
			return r, err
		}
	}
	load := out.Load()
	r.Wall, r.Experts = r.Time, float64(len(load.Tokens)-load.Dead)
	return r, nil
}

// together waits for all ranks.
func (m *member) together() error {
	if m.rank == nil {
		return nil
	}
	return m.rank.Group.Barrier()
}

// first is the first rank's time, so that all of them run as often.
func (m *member) first(mine time.Duration) (time.Duration, error) {
	data := binary.LittleEndian.AppendUint64(nil, uint64(mine))
	err := m.rank.Group.Broadcast(data, 0)
	return time.Duration(binary.LittleEndian.Uint64(data)), err
}

func (m *member) backward(tape *samebit.Tape, dy []samebit.BF16) error {
	defer tape.Free()
	if _, err := m.Backward(tape, dy, m.grads.Gradients); err != nil {
		return err
	}
	return m.grads.Flush()
}
