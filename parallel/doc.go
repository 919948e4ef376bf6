// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package parallel spreads a layer over ranks without a changed bit (R12). A rank never adds numbers that came from different
// ranks, except to finish a tree from its aligned subtrees: what crosses between ranks is data that a rule has already rounded,
// and it is moved, not reduced.
//
// A grid has TP x EP ranks. The EP ranks of a row have tokens of their own and own different experts; the TP ranks of a column
// have the same tokens and the same experts, and slice what these put out:
//
//   - a token's x goes to the ranks that own its experts, whose rows come home to be combined in the token's slot order (EP);
//   - a rank makes some of the I numbers between gate and up and down, and gets the others from its column before it makes some
//     of the H numbers of a row (TP): whole dot products both times.
//
// Rank is a backend.Spreader, so that a layer on ranks is a samebit.Layer like any other, whose flow is the one in package
// samebit: a stage of this package is the stage of the backend below, on slices, with an exchange ahead of it or behind.
//
//	group := parallel.Local(4)[i]                                // in one process; or MPI, or NCCL
//	rank, err := parallel.Join(group, parallel.Grid{TP: 2, EP: 2})
//	layer, err := samebit.Open(dir, n, samebit.Options{Ranks: rank})
//	out, err := layer.Forward(x)                                 // x: this rank's tokens
package parallel
