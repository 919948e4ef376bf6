// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bench

import (
	"sync"
	"time"
	"unsafe"

	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/cpu/elements"
	"github.com/samebit/samebit/internal/cpu/tcdot"
	"github.com/samebit/samebit/internal/host"
	"github.com/samebit/samebit/internal/testgen"
)

// Bandwidth is how fast the machine's memory was seen to be read, in bytes a second.
type Bandwidth struct {
	Core float64 `json:"core"` // by one worker
	All  float64 `json:"all"`  // by all of them
}

const (
	readBytes   = 2 << 30 // to read, many times what caches hold
	readBlock   = 1 << 16 // elements at a time
	readRegions = 4       // pieces of memory, since where one lies can cost a third of the speed
	reads       = 3       // passes over each, of all of which the best counts
)

// ReadBandwidth reads memory, in huge pages where the system has them, and does next to nothing with it.
func ReadBandwidth(workers int, tick func(done, total int64)) (best Bandwidth, err error) {
	for region := range int64(readRegions) {
		b, err := readRegion(workers)
		if err != nil {
			return best, err
		}
		best = Bandwidth{max(best.Core, b.Core), max(best.All, b.All)}
		if tick != nil {
			tick(region+1, readRegions)
		}
	}
	return best, nil
}

func readRegion(workers int) (Bandwidth, error) {
	pages, free, err := host.Pages(readBytes)
	if err != nil {
		return Bandwidth{}, err
	}
	defer free()
	data := unsafe.Slice((*contract.BF16)(unsafe.Pointer(unsafe.SliceData(pages))), readBytes/2)
	testgen.Fill(data, Seed, 0, testgen.WeightScale) // a page that was never written has no memory of its own
	best := func(workers int) (fastest float64) {
		for range reads {
			for _, read := range readers() {
				fastest = max(fastest, readBytes/readAll(data, workers, read).Seconds())
			}
		}
		return fastest
	}
	return Bandwidth{Core: best(1), All: best(workers)}, nil
}

// readAll reads data, each worker a part of it.
func readAll(data []contract.BF16, workers int, read func([]contract.BF16)) time.Duration {
	blocks := len(data) / readBlock
	var wg sync.WaitGroup
	start := time.Now()
	for w := range workers {
		wg.Go(func() {
			for b := w * blocks / workers; b < (w+1)*blocks/workers; b++ {
				read(data[b*readBlock:][:readBlock])
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

// readers are ways to read memory; which is faster depends on the machine.
func readers() []func([]contract.BF16) {
	all := []func([]contract.BF16){func(v []contract.BF16) { sum(words(v)) }, func(v []contract.BF16) { tcdot.Top(v) }}
	for _, e := range elements.Sets() {
		if e.Name != elements.Go.Name { // which reads element by element
			all = append(all, func(v []contract.BF16) { e.NonFinite(v) })
		}
	}
	return all
}

// words is the memory of v, whose length is a multiple of 4, as whole words; x86 and arm64 read them from anywhere.
func words(v []contract.BF16) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(v))), len(v)/4)
}

//go:noinline
func sum(v []uint64) uint64 {
	var a, b, c, d uint64
	for len(v) >= 8 {
		w := (*[8]uint64)(v)
		a, b, c, d = a+w[0]^w[4], b+w[1]^w[5], c+w[2]^w[6], d+w[3]^w[7]
		v = v[8:]
	}
	return a + b + c + d
}
