// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/cuda/driver"
	"github.com/samebit/samebit/internal/cuda/image"
	"github.com/samebit/samebit/internal/host"
)

// fold is R10's sums and R11. The router's sums are taken in each Add. The experts' rows are not: the fold holds the buffers of a call,
// and Flush folds all calls in one pass over the gradients. It copies what is not the backend's own, and what a later backward is
// about to write (spare). What it holds is known to the host alone, so a graph has all of a stream, up to Flush, or none of it.
//
// Where the calls come to more than mostHeld, their whole segments are folded ahead of Flush, into the FP32 gradients or, for BF16,
// into FP32 sums of the fold's own, twice as large as the gradients; the rows left over, fewer than a segment to an expert, wait in
// a store.
type fold struct {
	l    *layer
	bf16 bool

	out                pointer // [E+1,3]: where each gradient lies
	router, sharedGate pointer // FP32 accumulators
	rounded            []foldRoundParams
	owned              []pointer // what Close gives back

	held    []heldCall
	bytes   int    // of the calls held
	waiting bool   // rows may wait in the store
	capture uint64 // that the stream so far is in; 0 for none

	counts     pointer // of what the kernels count: order, the state, and waiting, before, count, start
	base, rows scratch
	store      scratch
	sums       scratch // for BF16: the table, and the sums
	summing    bool    // the sums are of this stream
}

// mostHeld is how many bytes of calls wait for Flush: 49,000 tokens of the first model.
const mostHeld = 2 << 30

// heldCall is a call whose rows wait.
type heldCall struct {
	foldCall
	tokens int
	kept   map[pointer]int // the caller's buffers that they lie in, and their bytes
	copies []pointer       // the fold's own
}

// NewFold starts a stream.
func (l *layer) NewFold(g *backend.Gradients) (backend.Fold, error) {
	l.stages.Lock()
	defer l.stages.Unlock()
	f := &fold{l: l, bf16: g.Router.Dtype() == backend.BF16}
	dtype := backend.FP32
	if f.bf16 {
		dtype = backend.BF16
	}
	groups := l.Experts + 1
	table := make([]pointer, 3*groups)
	lay := func(e int, x *backend.ExpertGradient) {
		table[3*e], table[3*e+1], table[3*e+2] = at(x.Gate, dtype), at(x.Up, dtype), at(x.Down, dtype)
	}
	for e := range g.Experts {
		lay(e, &g.Experts[e])
	}
	if g.Shared != nil {
		lay(l.Experts, g.Shared)
	}
	err := errors.Join(f.own(&f.out, 8*len(table)), f.own(&f.counts, foldCountBytes(groups)))
	if err != nil {
		return nil, errors.Join(err, f.free())
	}
	f.router, f.sharedGate = at(g.Router, dtype), at(g.SharedGate, dtype)
	if f.bf16 {
		for _, sum := range []struct {
			at *pointer
			n  int
		}{{&f.router, l.Experts * l.Hidden}, {&f.sharedGate, int(l.shared()) * l.Hidden}} {
			r := foldRoundParams{to: *sum.at, n: int64(sum.n)}
			err := f.own(sum.at, 4*sum.n)
			if err == nil {
				err = l.gpu.Fill(*sum.at, 0, 4*sum.n, l.stream)
			}
			if err != nil {
				return nil, errors.Join(err, f.free())
			}
			r.from = *sum.at
			f.rounded = append(f.rounded, r)
		}
	}
	err = errors.Join(l.gpu.ToDevice(f.out, host.Bytes(table), l.stream), l.gpu.Fill(f.counts, 0, foldCountBytes(groups), l.stream), l.gpu.Wait(l.stream))
	if err != nil {
		return nil, errors.Join(err, f.free())
	}
	if l.folds == nil {
		l.folds = map[*fold]struct{}{}
	}
	l.folds[f] = struct{}{}
	return f, nil
}

// own allocates what lives as long as the fold.
func (f *fold) own(p *pointer, bytes int) (err error) {
	if *p, _, err = f.l.take(bytes); err == nil && bytes > 0 {
		f.owned = append(f.owned, *p)
	}
	return err
}

// Add takes the router's sums and holds the rows.
func (f *fold) Add(a backend.FoldArgs) error {
	l := f.l
	if a.Rows.Tokens == 0 {
		return nil
	}
	l.stages.Lock()
	defer l.stages.Unlock()
	if err := f.stays(); err != nil {
		return err
	}
	s := &launches{layer: l}
	c := heldCall{tokens: a.Rows.Tokens, kept: map[pointer]int{}}
	bytes := 0
	hold := func(b backend.Buffer, d backend.Dtype) pointer {
		p, v := at(b, d), b.(*buffer)
		bytes += v.bytes()
		if _, is := c.kept[p]; is || l.keep(v) {
			c.kept[p] = v.bytes()
			return p
		}
		return c.copy(s, p, v.bytes())
	}
	rows := func(b backend.Buffer, rows, columns int) pointer {
		if b == nil || b.Len() == 0 {
			return 0
		}
		if from := bf16(b); columns%8 != 0 || from%16 != 0 { // not as they can be gathered
			bytes += 2 * rows * pad(columns)
			return c.padded(s, from, rows, columns)
		}
		return hold(b, backend.BF16)
	}
	tokens, slots := a.Rows.Tokens, a.Rows.Tokens*l.TopK
	c.foldCall = foldCall{offsets: hold(a.Rows.Offsets, backend.I32), token: hold(a.Rows.Token, backend.I32),
		x: rows(a.X, tokens, l.Hidden), dy: rows(a.DY, tokens, l.Hidden),
		dgate: rows(a.RoutedGrad.DGate, slots, l.Width), dup: rows(a.RoutedGrad.DUp, slots, l.Width), hw: rows(a.RoutedGrad.HW, slots, l.Width),
		sharedDGate: rows(a.SharedGrad.DGate, tokens, l.SharedWidth), sharedDUp: rows(a.SharedGrad.DUp, tokens, l.SharedWidth),
		sharedHW: rows(a.SharedGrad.HW, tokens, l.SharedWidth)}
	f.addRouter(s, a, c.x)
	most := mostHeld
	if l.holds > 0 {
		most = l.holds
	}
	if len(f.held) > 0 && f.bytes+bytes > most {
		f.settle(s)
	}
	f.held, f.bytes = append(f.held, c), f.bytes+bytes
	return s.err
}

// stays refuses a stream that is in a graph in part.
func (f *fold) stays() error {
	id, err := f.l.gpu.Capturing(f.l.stream)
	if begun := len(f.held) > 0 || f.waiting || f.summing; err == nil && begun && id != f.capture {
		return errors.New("cuda: a stream of gradients that is in a graph in part: need all of it, up to Flush, in one graph, or none")
	}
	f.capture = id
	return err
}

// own gives the call memory.
func (c *heldCall) own(s *launches, bytes int) (p pointer) {
	if s.err == nil {
		p, _, s.err = s.take(bytes)
		c.copies = append(c.copies, p)
	}
	return p
}

// copy copies memory that will be another's before Flush.
func (c *heldCall) copy(s *launches, from pointer, bytes int) pointer {
	to := c.own(s, bytes)
	if s.err == nil {
		s.err = s.gpu.Copy(to, from, bytes, s.stream)
	}
	return to
}

// padded copies rows to a pitch of whole chunks.
func (c *heldCall) padded(s *launches, from pointer, rows, columns int) pointer {
	to := c.own(s, 2*rows*pad(columns))
	s.padRows(to, from, rows, columns)
	return to
}

// spare has the folds copy what they hold of these buffers, which are about to be written. The caller has the stages' lock.
func (l *layer) spare(buffers ...backend.Buffer) error {
	s := &launches{layer: l}
	for _, b := range buffers {
		if b == nil {
			continue
		}
		p := b.(*buffer).at
		for f := range l.folds {
			for i := range f.held {
				c := &f.held[i]
				bytes, is := c.kept[p]
				if !is {
					continue
				}
				to := c.copy(s, p, bytes)
				for _, place := range c.places() {
					if *place == p {
						*place = to
					}
				}
				delete(c.kept, p)
				l.letGo(p)
			}
		}
	}
	return s.err
}

// addRouter is R10's sums.
func (f *fold) addRouter(s *launches, a backend.FoldArgs, x pointer) {
	l := f.l
	p := foldRouterParams{offsets: i32(a.Rows.Offsets), token: i32(a.Rows.Token), slot: i32(a.Rows.Slot), row: i32(a.Rows.Row),
		dlogits: fp32(a.DLogits), dz: fp32(a.DZ), x: x, router: f.router, sharedGate: f.sharedGate, tokens: l.count(a.Rows.Tokens),
		experts: int32(l.Experts), slots: int32(l.TopK), hidden: int32(l.Hidden), pitch: int32(pad(l.Hidden)), shared: l.shared()}
	columns := ceil(l.Hidden, 64)
	shared := columns * int(l.shared())
	if l.NormTopK {
		run(s, image.FoldRouterF32, [3]int{shared + l.Experts*ceil(l.Hidden, 256)}, 128, foldRouterShared, &p)
		return
	}
	run(s, image.FoldRouterDenseF32, [3]int{columns, ceil(l.Experts, 8)}, 32, 0, &p)
	if shared > 0 {
		run(s, image.FoldRouterF32, [3]int{shared}, 128, foldRouterShared, &p)
	}
}

// settle folds the whole segments of what is held, and keeps the rest.
func (f *fold) settle(s *launches) {
	l := f.l
	row := 2*pad(l.Hidden) + 3*max(pad(l.Width), pad(l.SharedWidth))
	s.scratch(&f.store, 2*(l.Experts+1)*contract.FoldSegment*row)
	to := f.out
	if f.bf16 {
		to = f.sumsTable(s)
	}
	f.fold(s, image.FoldExpertsF32, to, to, true)
	f.waiting = true
}

// sumsTable is the table of the stream's FP32 sums, which are +0 at its beginning.
func (f *fold) sumsTable(s *launches) pointer {
	l := f.l
	routed, shared := 4*l.Hidden*l.Width, 4*l.Hidden*l.SharedWidth
	head, bytes := 8*3*(l.Experts+1), 3*(l.Experts*routed+shared)
	head = ceil(head, 512) * 512
	fresh := f.sums.room == 0
	table := s.scratch(&f.sums, head+bytes)
	if s.err == nil && !f.summing {
		s.err = l.gpu.Fill(table+pointer(head), 0, bytes, l.stream)
	}
	if s.err == nil && fresh {
		pointers := make([]pointer, 3*(l.Experts+1))
		for i := range pointers {
			pointers[i] = table + pointer(head+min(i, 3*l.Experts)*routed+max(0, i-3*l.Experts)*shared)
		}
		s.err = errors.Join(l.gpu.ToDevice(table, host.Bytes(pointers), l.stream), l.gpu.Wait(l.stream))
	}
	f.summing = true
	return table
}

// Flush folds in what waits, and ends the stream.
func (f *fold) Flush() error {
	l := f.l
	l.stages.Lock()
	defer l.stages.Unlock()
	if err := f.stays(); err != nil {
		return err
	}
	s := &launches{layer: l}
	switch {
	case f.bf16:
		sums := pointer(0)
		if f.summing {
			sums = f.sumsTable(s)
		}
		f.fold(s, image.FoldExpertsBf16, f.out, sums, false)
		for i := range f.rounded {
			if r := &f.rounded[i]; r.n > 0 {
				run(s, image.FoldRoundBf16, [3]int{min(4*l.gpu.Processors, ceil(int(r.n), 256))}, 256, 0, r)
			}
		}
	case len(f.held) > 0 || f.waiting:
		f.fold(s, image.FoldExpertsF32, f.out, f.out, false)
	}
	f.waiting, f.summing = false, false
	return s.err
}

// fold runs one pass: the index of what is held and what waits, and the products into out. whole leaves the rows that fill no segment
// in the store.
func (f *fold) fold(s *launches, kernel int, out, sums pointer, whole bool) {
	l := f.l
	index := f.index(s, whole, kernel == image.FoldExpertsBf16)
	routed, shared := max(1, l.Width), max(1, l.SharedWidth)
	to := func(width int) driver.TensorMap { return s.everywhere(2*pad(width), foldOutRows, 1) }
	if kernel == image.FoldExpertsF32 {
		to = func(width int) driver.TensorMap { return s.everywhere(16*ceil(width, 4), foldSlabRows, foldSlabStrips) }
	}
	p := foldParams{routed: s.everywhere(2*pad(routed), contract.FoldSegment, 1), shared: s.everywhere(2*pad(shared), contract.FoldSegment, 1),
		toHidden: to(l.Hidden), toWidth: to(routed), toShared: to(shared), out: out, sums: sums,
		order: index.order, state: index.state, rows: index.rows, places: index.places, experts: int32(l.Experts), hidden: int32(l.Hidden),
		width: int32(l.Width), sharedWidth: int32(l.SharedWidth), hiddenPitch: index.hidden, widthPitch: index.width, sharedPitch: index.sharedWidth}
	run(s, kernel, [3]int{l.gpu.Processors}, foldThreads, foldShared, &p)
	if whole {
		run(s, image.FoldKeepBf16, [3]int{l.Experts + 1, contract.FoldSegment - 1}, 128, 0, index)
	}
	f.release()
}

// index says where the rows of each group's stream lie; every says that a group without rows has its gradient written too.
func (f *fold) index(s *launches, whole, every bool) *foldIndexParams {
	l := f.l
	groups := l.Experts + 1
	places, most := groups*2*contract.FoldSegment, 1
	for _, c := range f.held {
		places += c.tokens * (l.TopK + int(l.shared()))
		most = max(most, c.tokens)
	}
	state := f.counts + pointer(foldWorkBytes*groups)
	array := func(i int) pointer { return state + pointer(foldStateBytes+4*i*groups) }
	p := &foldIndexParams{order: f.counts, state: state, waiting: array(0), before: array(1), count: array(2), start: array(3),
		base: s.scratch(&f.base, 4*groups*max(1, len(f.held))), rows: s.scratch(&f.rows, 8*foldParts*places), store: f.store.at,
		places: int64(places), experts: int32(l.Experts), sharedGroup: l.shared(), hidden: int32(pad(l.Hidden)), width: int32(pad(l.Width)),
		sharedWidth: int32(pad(l.SharedWidth)), blocks: int32(l.gpu.Processors)}
	if whole {
		p.whole = 1
	}
	if every {
		p.every = 1
	}
	turns := max(1, ceil(len(f.held), foldCalls))
	turn := func(i int) {
		calls := f.held[i*foldCalls : min(len(f.held), (i+1)*foldCalls)]
		p.first, p.callsHere, p.last = int32(i*foldCalls), int32(len(calls)), 0
		clear(p.calls[:])
		for j, c := range calls {
			p.calls[j] = c.foldCall
		}
		if i == turns-1 {
			p.last = 1
		}
	}
	for i := range turns {
		turn(i)
		run(s, image.FoldLayI32, [3]int{1}, 1024, 8*32, p)
	}
	for i := range turns {
		turn(i)
		calls := int(p.callsHere)
		if p.last == 1 && f.waiting {
			calls++
		}
		if calls > 0 {
			run(s, image.FoldPlaceI32, [3]int{groups, calls, min(32, ceil(most, 1024))}, 256, 0, p)
		}
	}
	return p
}

// everywhere describes all memory from 2^30 on as so many rows of a pitch in bytes, from any address on, a strip of 128 bytes of each or
// several beside one another: x counts within steps of 2^30 bytes, so that one map serves every buffer. Where a matrix's rows are not of
// whole chunks, no kernel uses the map.
func (s *launches) everywhere(pitch, rows, strips int) driver.TensorMap {
	if s.err != nil {
		return driver.TensorMap{}
	}
	const step, strip = 1 << 30, 64
	t := driver.Tensor{At: step, Sizes: sizes(step/2+strip, rows, 1<<20), Strides: sizes(pitch, step), Box: []uint32{strip, uint32(rows), 1}}
	if strips > 1 {
		t.Sizes, t.Strides, t.Box = sizes(step/2+strip, rows, strips, 1<<20), sizes(pitch, 2*strip, step), []uint32{strip, uint32(rows), uint32(strips), 1}
	}
	var m driver.TensorMap
	m, s.err = s.gpu.NewTensorMap(t)
	return m
}

// foldShared is the shared memory of the products: the same for both, of which FP32's has half the stages' and more on its way.
const foldShared = 1024 + foldStages*foldStageBytes + foldBarsBytes + foldStagedBytes

// release lets go of the calls: whoever has their memory next comes later in the stream.
func (f *fold) release() {
	for _, c := range f.held {
		for p := range c.kept {
			f.l.letGo(p)
		}
		for _, p := range c.copies {
			f.l.give(p, f.l.all[p])
		}
	}
	f.held, f.bytes = f.held[:0], 0
}

// Close gives back what the fold has; the gradients stay, without the rows that wait.
func (f *fold) Close() error {
	f.l.stages.Lock()
	defer f.l.stages.Unlock()
	return f.free()
}

func (f *fold) free() error {
	f.release()
	for _, p := range f.owned {
		f.l.give(p, f.l.all[p])
	}
	f.owned = nil
	for _, s := range []*scratch{&f.base, &f.rows, &f.store, &f.sums} {
		f.l.memory.release(s)
		*s = scratch{}
	}
	delete(f.l.folds, f)
	return nil
}
