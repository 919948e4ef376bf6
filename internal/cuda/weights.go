// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"unsafe"

	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/cpu/tcdot"
	"github.com/samebit/samebit/internal/cuda/driver"
)

// weights are a layer's weights on the GPU, stacked by expert. Rows are padded with zeros to multiples of 8, which the
// copy engine needs, and which change no bit (R1).
type weights struct {
	router         pointer // [E+1,H]: the shared gate, or zeros, last
	routed, shared experts
	routerMap      driver.TensorMap
}

// experts are a stack of experts: gate [E,I,H], up [E,I,H], down [E,H,I]. The backward reads them by their columns; where gate
// and up must lie in one for that, there is a copy [E,2I,H].
type experts struct {
	gateUp, down             pointer
	gateUpMap, downMap       driver.TensorMap
	joined                   pointer
	gateUpTurned, downTurned driver.TensorMap
}

// pad is n rounded up to what the copy engine can stride by.
func pad(n int) int { return ceil(n, 8) * 8 }

// stagingPart is how many bytes are copied at a time, through one half of pinned memory while the GPU reads the other.
const stagingPart = 16 << 20

// upload is a sequence of copies to the GPU.
type upload struct {
	*Backend
	pinned []byte
	events [2]driver.Event
	half   int
	used   int
	to     pointer
	top    int // of all that was added, as tcdot.Top has it
	copied func([]contract.BF16)
}

func (b *Backend) newUpload(copied func([]contract.BF16)) (*upload, error) {
	u := &upload{Backend: b, copied: copied}
	var err error
	if u.pinned, err = b.gpu.Pinned(2 * stagingPart); err != nil {
		return nil, err
	}
	for i := range u.events {
		if u.events[i], err = b.gpu.NewEvent(); err != nil {
			return nil, err
		}
	}
	return u, nil
}

func (u *upload) close() error {
	err := u.gpu.Wait(u.stream)
	for _, e := range u.events {
		if e := u.gpu.FreeEvent(e); err == nil {
			err = e
		}
	}
	if e := u.gpu.FreePinned(u.pinned); err == nil {
		err = e
	}
	return err
}

// add appends a matrix of columns to what goes to the pointer, each row padded to a pitch, then rows of zeros.
func (u *upload) add(m []contract.BF16, columns, pitch, zeros int) error {
	if u.copied != nil {
		defer u.copied(m)
	}
	u.top = max(u.top, tcdot.Top(m))
	if columns == pitch {
		if err := u.bytes(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(m))), 2*len(m))); err != nil {
			return err
		}
	} else {
		row := make([]contract.BF16, pitch)
		for ; len(m) > 0; m = m[columns:] {
			copy(row, m[:columns])
			if err := u.bytes(unsafe.Slice((*byte)(unsafe.Pointer(&row[0])), 2*pitch)); err != nil {
				return err
			}
		}
	}
	return u.bytes(make([]byte, 2*pitch*zeros))
}

func (u *upload) bytes(from []byte) error {
	for len(from) > 0 {
		n := copy(u.pinned[u.half*stagingPart+u.used:(u.half+1)*stagingPart], from)
		u.used += n
		from = from[n:]
		if u.used == stagingPart {
			if err := u.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush sends the half that is being filled, and waits for the other to have been sent.
func (u *upload) flush() error {
	from := u.pinned[u.half*stagingPart:][:u.used]
	if err := u.gpu.ToDevice(u.to, from, u.stream); err != nil {
		return err
	}
	if err := u.gpu.Record(u.events[u.half], u.stream); err != nil {
		return err
	}
	u.to += pointer(u.used)
	u.used, u.half = 0, 1-u.half
	return u.gpu.Synchronize(u.events[u.half])
}

// begin has what is added go to memory of so many elements, allocated the first time.
func (u *upload) begin(to *pointer, elements int) error {
	if *to == 0 {
		var err error
		if *to, _, err = u.take(2 * elements); err != nil {
			return err
		}
	}
	u.to = *to
	return nil
}

// upload sends the weights to w, whose memory it allocates the first time, and refuses those that are not finite (R13).
func (b *Backend) upload(w *weights, s contract.Shape, from *contract.Weights, copied func([]contract.BF16)) error {
	u, err := b.newUpload(copied)
	if err != nil {
		return err
	}
	err = u.all(w, s, from)
	if e := u.close(); err == nil {
		err = e
	}
	if err == nil && u.top == tcdot.NotFinite {
		err = from.CheckFinite()
	}
	return err
}

func (u *upload) all(w *weights, s contract.Shape, from *contract.Weights) error {
	hidden := pad(s.Hidden)
	if err := u.begin(&w.router, (s.Experts+1)*hidden); err != nil {
		return err
	}
	if err := u.add(from.Router, s.Hidden, hidden, 0); err != nil {
		return err
	}
	zeros := 1
	if from.Shared != nil {
		zeros = 0
	}
	if err := u.add(from.SharedGate, s.Hidden, hidden, zeros); err != nil {
		return err
	}
	if err := u.flush(); err != nil {
		return err
	}
	var err error
	w.routerMap, err = u.gpu.NewTensorMap(driver.Tensor{At: w.router, Sizes: sizes(hidden, s.Experts+1), Strides: sizes(2 * hidden),
		Box: []uint32{stageTerms, copyRows}})
	if err != nil {
		return err
	}
	if err := u.experts(&w.routed, from.Experts, s.Hidden, s.Width); err != nil {
		return err
	}
	if from.Shared == nil {
		w.shared = experts{gateUpMap: w.routed.gateUpMap, downMap: w.routed.downMap,
			gateUpTurned: w.routed.gateUpTurned, downTurned: w.routed.downTurned} // not used
		return nil
	}
	return u.experts(&w.shared, []contract.Expert{*from.Shared}, s.Hidden, s.SharedWidth)
}

func (u *upload) experts(to *experts, from []contract.Expert, hidden, width int) error {
	if width == 0 {
		return nil
	}
	h, w, n := pad(hidden), pad(width), len(from)
	if err := u.begin(&to.gateUp, 2*n*w*h); err != nil {
		return err
	}
	for _, part := range []func(*contract.Expert) []contract.BF16{
		func(e *contract.Expert) []contract.BF16 { return e.Gate },
		func(e *contract.Expert) []contract.BF16 { return e.Up },
	} {
		for i := range from {
			if err := u.add(part(&from[i]), hidden, h, w-width); err != nil {
				return err
			}
		}
	}
	if err := u.flush(); err != nil {
		return err
	}
	if err := u.begin(&to.down, n*hidden*w); err != nil {
		return err
	}
	for i := range from {
		if err := u.add(from[i].Down, width, w, 0); err != nil {
			return err
		}
	}
	if err := u.flush(); err != nil {
		return err
	}
	var err error
	if to.gateUpMap, err = u.gpu.NewTensorMap(gateUpRows(to.gateUp, n, hidden, width)); err != nil {
		return err
	}
	if to.downMap, err = u.gpu.NewTensorMap(downRows(to.down, n, hidden, width)); err != nil {
		return err
	}
	return u.turned(to, n, hidden, width)
}

// gateUpPairs and downPairs say whether what a warp makes of the second 64 rows of a copy of weights follows what it makes of the first.
// The kernels ask the same of the same numbers.
func gateUpPairs(width int) bool { return width%16 == 0 }
func downPairs(hidden int) bool  { return hidden%32 == 0 }

// gateUpRows describes gate and up of n experts, eight rows of each in turn, so that one warp's accumulators hold both of a column.
func gateUpRows(at pointer, n, hidden, width int) driver.Tensor {
	h, w := pad(hidden), pad(width)
	row, up := 2*h, 2*n*w*h
	if gateUpPairs(width) {
		return driver.Tensor{At: at, Sizes: sizes(h, 8, 2, n*w/16, 2), Strides: sizes(row, up, 16*row, 8*row), Box: []uint32{stageTerms, 8, 2, 4, 2}}
	}
	return driver.Tensor{At: at, Sizes: sizes(h, 8, 2, w/8, n), Strides: sizes(row, up, 8*row, w*row), Box: []uint32{stageTerms, 8, 2, copyRows / 16, 1}}
}

// downRows describes down, likewise.
func downRows(at pointer, n, hidden, width int) driver.Tensor {
	w := pad(width)
	row := 2 * w
	if downPairs(hidden) {
		return driver.Tensor{At: at, Sizes: sizes(w, 16, n*hidden/32, 2), Strides: sizes(row, 32*row, 16*row), Box: []uint32{stageTerms, 16, 4, 2}}
	}
	return driver.Tensor{At: at, Sizes: sizes(w, hidden, n, 1), Strides: sizes(row, hidden*row, n*hidden*row), Box: []uint32{stageTerms, copyRows, 1, 1}}
}

// turned describes the weights for the backward: 64 columns, by 64 rows over which it sums.
func (u *upload) turned(to *experts, n, hidden, width int) error {
	h, w := pad(hidden), pad(width)
	t := driver.Tensor{At: to.gateUp, Sizes: sizes(h, w, n, 2), Strides: sizes(2*h, 2*w*h, 2*n*w*h), Box: []uint32{64, stageTerms, 1, 1}}
	if joins(width) {
		if err := u.begin(&to.joined, 2*n*width*h); err != nil {
			return err
		}
		for i := range n {
			for part := range 2 {
				err := u.gpu.Copy(to.joined+pointer(2*(2*i+part)*width*h), to.gateUp+pointer(2*(part*n+i)*w*h), 2*width*h, u.stream)
				if err != nil {
					return err
				}
			}
		}
		t.At, t.Sizes, t.Strides = to.joined, sizes(h, 2*width, n, 1), sizes(2*h, 4*width*h, 4*n*width*h)
	}
	var err error
	if to.gateUpTurned, err = u.gpu.NewTensorMap(t); err != nil {
		return err
	}
	to.downTurned, err = u.gpu.NewTensorMap(driver.Tensor{At: to.down, Sizes: sizes(w, hidden, n), Strides: sizes(2*w, 2*hidden*w),
		Box: []uint32{64, stageTerms, 1}})
	return err
}

func sizes(n ...int) []uint64 {
	s := make([]uint64, len(n))
	for i, v := range n {
		s[i] = uint64(v)
	}
	return s
}

// drop gives the weights' memory back.
func (b *Backend) drop(w *weights) {
	for _, p := range []pointer{w.router, w.routed.gateUp, w.routed.down, w.routed.joined, w.shared.gateUp, w.shared.down, w.shared.joined} {
		if p != 0 {
			b.give(p, b.all[p])
		}
	}
}
