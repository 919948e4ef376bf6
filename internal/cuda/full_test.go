// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/host"
	"github.com/samebit/samebit/internal/testgen"
)

// full is the layer of the first model, made once.
var full = sync.OnceValues(func() (contract.Shape, contract.Weights) {
	s, err := testgen.Shape("qwen3-next")
	if err != nil {
		panic(err)
	}
	return s, testgen.Weights(s, 1)
})

// The full shape. Everything that 4097 tokens make, and for smaller numbers of tokens what leaves the layer, against the CPU; then
// larger batches, whose last 16 tokens must be a batch of 16.
func TestFullShape(t *testing.T) {
	if testing.Short() {
		t.Skip("3 GB of weights")
	}
	b := openGPU(t)
	begin := time.Now()
	lap := func(what string) {
		t.Logf("%s: %.1f s", what, time.Since(begin).Seconds())
		begin = time.Now()
	}
	s, w := full()
	lap("weights")
	p := newPair(t, b, s, &w, false)
	lap("upload")
	const most = 131072
	x := testgen.Tokens(most, s.Hidden, 2)
	for i := range Tilings {
		p.have.tiling = &Tilings[i]
		p.check(fmt.Sprintf("64 tokens, tiles %v", Tilings[i]), x[:64*s.Hidden], nil, true)
	}
	p.have.tiling = nil
	lap("64 tokens, every tiling")
	const some = 4097
	want := forward(t, p.cpu, p.want, s, x[:some*s.Hidden], nil, false)
	lap("4097 tokens on the CPU")
	same(t, "4097 tokens", s, forward(t, b, p.have, s, x[:some*s.Hidden], nil, false), want)
	counts := []int{255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 4095, 4096}
	for n := range 131 {
		counts = append(counts, n)
	}
	for _, n := range counts {
		have := forward(t, b, p.have, s, x[:n*s.Hidden], nil, false)
		if !slices.Equal(have.y, want.y[:n*s.Hidden]) || !slices.Equal(have.ids, want.ids[:n*s.TopK]) ||
			!bytes.Equal(host.Bytes(have.weights), host.Bytes(want.weights[:n*s.TopK])) || !bytes.Equal(host.Bytes(have.logits), host.Bytes(want.logits[:n*s.Experts])) {
			t.Errorf("%d tokens: not what they are among 4097", n)
		}
	}
	lap("0 to 130 tokens, and where others switch kernels")
	for _, n := range []int{16384, 32768, 65537, 104858, most} {
		tail := x[(n-16)*s.Hidden : n*s.Hidden]
		last := forward(t, p.cpu, p.want, s, tail, nil, false)
		all := forward(t, b, p.have, s, x[:n*s.Hidden], nil, false)
		rest := n - 16
		if !slices.Equal(all.y[rest*s.Hidden:], last.y) || !slices.Equal(all.ids[rest*s.TopK:], last.ids) ||
			!bytes.Equal(host.Bytes(all.weights[rest*s.TopK:]), host.Bytes(last.weights)) || !bytes.Equal(host.Bytes(all.logits[rest*s.Experts:]), host.Bytes(last.logits)) {
			t.Errorf("%d tokens: the last 16 are not those of a batch of 16", n)
		}
		lap(fmt.Sprintf("%d tokens", n))
	}
}

// The 30B-A3B shape.
func TestOtherShape(t *testing.T) {
	if testing.Short() {
		t.Skip("1 GB of weights")
	}
	b := openGPU(t)
	s, err := testgen.Shape("qwen3-30b-a3b")
	if err != nil {
		t.Fatal(err)
	}
	w := testgen.Weights(s, 1)
	p := newPair(t, b, s, &w, false)
	for _, n := range []int{1, 33, 500, 3000} {
		p.check(fmt.Sprintf("%d tokens", n), testgen.Tokens(n, s.Hidden, uint64(n)), nil, n < 1000)
	}
}
