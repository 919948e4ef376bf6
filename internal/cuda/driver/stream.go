// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package driver

// NewStream gives a stream that waits for no other.
func (d *Device) NewStream() (Stream, error) {
	const nonBlocking = 1
	s := new(Pointer)
	err := d.into(s, "making a stream", cuStreamCreate, nonBlocking)
	return Stream(*s), err
}

// FreeStream gives it back.
func (d *Device) FreeStream(s Stream) error {
	return d.do("freeing a stream", cuStreamDestroy, uintptr(s))
}

// Wait waits for all work in the stream; an error of a kernel shows here.
func (d *Device) Wait(s Stream) error {
	return d.do("waiting for the GPU", cuStreamSynchronize, uintptr(s))
}

// Capture makes a graph of what do asks of the stream.
func (d *Device) Capture(s Stream, do func() error) (Exec, error) {
	const relaxed = 2 // a goroutine may move between threads
	if err := d.do("beginning to capture a graph", cuStreamBeginCapture, uintptr(s), relaxed); err != nil {
		return 0, err
	}
	failed := do()
	graph := new(uintptr)
	if err := d.do("ending the capture of a graph", cuStreamEndCapture, uintptr(s), address(graph)); err != nil && failed == nil {
		failed = err
	}
	if failed != nil {
		return 0, failed
	}
	x := new(Pointer)
	err := d.into(x, "making a graph", cuGraphInstantiate, *graph, 0)
	if e := d.do("freeing a graph's plan", cuGraphDestroy, *graph); err == nil {
		err = e
	}
	return Exec(*x), err
}

// Capturing tells one capture from others: what the stream's work is being captured for, 0 where it is not.
func (d *Device) Capturing(s Stream) (id uint64, err error) {
	out := new([2]uint64) // a status, and the number of the capture
	err = d.do("asking for a capture", cuStreamGetCaptureInfo, uintptr(s), address(&out[0]), address(&out[1]), 0, 0, 0)
	if uint32(out[0]) == 0 {
		return 0, err
	}
	return out[1], err
}

// Replay runs a graph.
func (d *Device) Replay(x Exec, s Stream) error {
	return d.do("launching a graph", cuGraphLaunch, uintptr(x), uintptr(s))
}

// FreeExec gives a graph back.
func (d *Device) FreeExec(x Exec) error {
	return d.do("freeing a graph", cuGraphExecDestroy, uintptr(x))
}

// NewEvent gives an event with a time.
func (d *Device) NewEvent() (Event, error) {
	e := new(Pointer)
	err := d.into(e, "making an event", cuEventCreate, 0)
	return Event(*e), err
}

// FreeEvent gives it back.
func (d *Device) FreeEvent(e Event) error {
	return d.do("freeing an event", cuEventDestroy, uintptr(e))
}

// Record marks the stream's place.
func (d *Device) Record(e Event, s Stream) error {
	return d.do("recording an event", cuEventRecord, uintptr(e), uintptr(s))
}

// Elapsed waits for the second event and gives the milliseconds between the two.
func (d *Device) Elapsed(from, to Event) (float64, error) {
	if err := d.do("waiting for an event", cuEventSynchronize, uintptr(to)); err != nil {
		return 0, err
	}
	ms := new(float32)
	err := d.do("reading the time between events", cuEventElapsedTime, address(ms), uintptr(from), uintptr(to))
	return float64(*ms), err
}

// Synchronize waits for an event; one that was never recorded is past.
func (d *Device) Synchronize(e Event) error {
	return d.do("waiting for an event", cuEventSynchronize, uintptr(e))
}
