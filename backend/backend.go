// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package backend is what a machine must do to run the layer: hold vectors in its own memory, hold a layer's weights, and
// carry out the stages of the contract on them. The flow above decides which stage comes when; an exchange between ranks
// stands between two stages; a backend knows nothing of either.
package backend

import (
	"errors"
	"fmt"

	"github.com/samebit/samebit/contract"
)

// Dtype is what a buffer's elements are.
type Dtype int

const (
	BF16 Dtype = iota // contract.BF16
	FP32              // float32
	I32               // int32
)

// Size is an element's size in bytes.
func (d Dtype) Size() int {
	if d == BF16 {
		return 2
	}
	return 4
}

func (d Dtype) String() string { return [...]string{"BF16", "FP32", "I32"}[d] }

// Buffer is a vector in a backend's own memory. Only the backend that made it can look inside; a buffer of zero elements
// is allowed, and a nil Buffer means "none".
type Buffer interface {
	Dtype() Dtype
	Len() int
	// Slice is the part of the buffer from one element to another, sharing its memory.
	Slice(from, to int) Buffer
}

// Memory is where a backend's buffers live.
type Memory interface {
	// Alloc gives a buffer of n elements; its contents are undefined.
	Alloc(d Dtype, n int) (Buffer, error)
	// Free gives the buffer back. A slice of a buffer is not freed.
	Free(Buffer)
	// Zero sets every element to zero (+0).
	Zero(Buffer) error
	// Write copies host memory into a buffer of the same number of bytes; Read copies it back, after all work that was
	// asked for before it.
	Write(dst Buffer, src []byte) error
	Read(dst []byte, src Buffer) error
	// Wrap makes a buffer of host memory, which is used in place; a backend whose memory is elsewhere refuses with
	// ErrElsewhere.
	Wrap(d Dtype, host []byte) (Buffer, error)
}

// ErrElsewhere says that a backend's memory is not the host's.
var ErrElsewhere = errors.New("host memory cannot be used in place: need Alloc and Write")

// Backend is one machine's way of running layers.
type Backend interface {
	Memory
	// Name is the backend's name in the registry.
	Name() string
	// Device says for people what runs the work.
	Device() string
	// Load copies the weights, and refuses those that are not finite (R13). Their memory is read again only in Refresh.
	Load(Spec) (Layer, error)
	Close() error
}

// Spec is a layer to load. Where its shape has a width of 0 the experts are elsewhere: the stages that read their matrices (GateUp,
// Down, ExpertsBackward, RowsBackward) are not called, and a fold makes the other gradients alone.
type Spec struct {
	Shape      contract.Shape
	Weights    *contract.Weights // looked at by Load and by Refresh, at no other time
	BF16Logits bool              // round the logits to BF16 (R2)

	// Copied, where it is not nil, is told of weights that have been copied, by Load and by Refresh, so that their memory can
	// go. Calls may come at the same time.
	Copied func([]contract.BF16)
}

// Layer is a loaded layer: the stages over its weights, each named by its rule. A stage reads and writes the buffers of its
// argument; on a device it may return before the work is done, and a later Read waits for it.
type Layer interface {
	Route(Route) error     // R2, R3, R4, R13
	Plan(Plan) error       // R5
	GateUp(GateUp) error   // R6
	Down(Down) error       // R6
	Combine(Combine) error // R7

	PlanBackward(PlanBackward) error       // R5, R9
	ExpertsBackward(ExpertsBackward) error // R8
	RouteBackward(RouteBackward) error     // R10
	RowsBackward(RowsBackward) error       // R9
	InputGradient(InputGradient) error     // R9
	NewFold(*Gradients) (Fold, error)      // R10, R11

	// Refresh takes note that the weights' memory has changed, as after an optimizer's step, and refuses weights that are not
	// finite (R13). Between the change and the Refresh no stage may run.
	Refresh() error
	Close() error
}

// UnsupportedError says that this machine cannot run a backend.
type UnsupportedError struct {
	Backend    string
	Need, Have string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("backend %s: need %s, have %s", e.Backend, e.Need, e.Have)
}
