// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package backend

import "github.com/samebit/samebit/contract"

// Spreader makes of a backend one rank's share of a backend that is spread over ranks. Its layers implement Ranks.
type Spreader interface {
	// Part is what this rank holds of a layer of that shape.
	Part(contract.Shape) contract.Part
	// Spread takes the backend over; it is closed with the one that Spread gives.
	Spread(Backend) Backend
}

// Ranks is a Layer that is spread over ranks: each holds a part of the weights and calls the same stages in the same order, on
// tokens of its own. The stages exchange what they need; to those who call them they are like any other's.
type Ranks interface {
	Layer
	// Begin opens a call: all ranks compare what they were asked to do, and learn of the errors of any. It gives the chunks
	// that this rank's tokens are worked on in: as many on every rank, so some may be empty.
	Begin(Call) ([]contract.Range, error)
	// Abort tells the ranks that this one has failed in the middle of a call: theirs end with an error, and all later ones.
	Abort(error)
}

// Sized is a Buffer that holds more or less memory than its elements take.
type Sized interface {
	Bytes() int64
}

// Call is what a rank was asked to do.
type Call struct {
	Name      string          // forward, backward
	Tokens    int             // of this rank
	MaxTokens int             // tokens worked on at a time
	Data      []contract.BF16 // of the tokens, which ranks of a tensor-parallel group must have alike
	Recompute bool            // a tape leaves out what the backward makes again
	Train     bool            // a tape is kept
	Replay    bool            // ids are given
	IDs       []int32         // and which, alike as Data is
	Tape      int64           // which of the layer's tapes the backward is of, from 1
	Fold      Fold            // where the weights' gradients go; nil where they are not wanted
	Err       error           // the arguments were refused
}
