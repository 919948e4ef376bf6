// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package backend

import "time"

// Device is a layer on a GPU, for callers who hold their tensors there and order work by streams, as an engine in the same
// process does. The driver's primary context is used, so that their addresses are valid here.
type Device interface {
	Layer
	// Queue makes a queue of work on the layer's weights.
	Queue() (Queue, error)
	// Held is how many bytes of the device's memory the layer has, its weights first of all.
	Held() int64
}

// Queue is one sequence of work on a device: stages over the layer's weights, and memory that no other queue uses, so that
// graphs of its stages stay valid until Close. Its stages never wait for the host, and allocate only what a larger number of
// tokens needs for the first time. Calls must come one at a time.
type Queue interface {
	Memory
	Layer
	// Use puts what follows into the caller's stream, a CUstream; before the first call it goes into one of the queue's own.
	Use(stream uintptr)
	// Count has stages read their number of tokens from n [1] I32 as they run, at most the one they are asked for; nil to
	// take that.
	Count(n Buffer)
	// Held is how many bytes of the device's memory the queue has.
	Held() int64
	// At makes a buffer of n elements of the caller's memory on the device; Address is where a buffer lies.
	At(d Dtype, address uintptr, n int) Buffer
	Address(Buffer) uintptr
	// Capture makes a graph of the work that do asks for, without running it: work that has run before, so that it allocates
	// nothing.
	Capture(do func() error) (Graph, error)
	// Time is how long the device takes for the work that do asks for.
	Time(do func() error) (time.Duration, error)
}

// Graph is captured work.
type Graph interface {
	// Replay asks for the work, and does not wait.
	Replay() error
	Close() error
}
