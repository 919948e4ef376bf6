// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

import (
	"cmp"
	"errors"
	"sync"
)

// Together has the ranks of this process do the same at the same time, and gives the first error that is no other rank's. An error on
// one ends the exchanges of all. A nil rank, which is that of a layer on no ranks, exchanges nothing.
func Together(ranks []*Rank, do func(i int, r *Rank) error) error {
	errs := make([]error, len(ranks))
	var group sync.WaitGroup
	for i, r := range ranks {
		group.Go(func() {
			if errs[i] = do(i, r); errs[i] != nil && r != nil {
				r.Group.Abort(errs[i])
			}
		})
	}
	group.Wait()
	var first error
	for i, err := range errs {
		if f, is := errors.AsType[*Failed](err); err != nil && (!is || f.Rank == ranks[i].Group.Rank()) {
			return err
		}
		first = cmp.Or(first, err)
	}
	return first
}
