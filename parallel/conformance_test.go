// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel_test

import (
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/contract/contracttest"
	"github.com/samebit/samebit/parallel"
)

// A rank passes the suite of every backend: here the only one of a grid, which sends all that it would to itself.
func TestConformance(t *testing.T) {
	rank, err := parallel.Join(parallel.Local(1)[0], parallel.Grid{TP: 1, EP: 1})
	if err != nil {
		t.Fatal(err)
	}
	contracttest.Run(t, samebit.Options{Backend: "cpu", Ranks: rank})
}
