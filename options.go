// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package samebit

import (
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"

	// The backends that every build has.
	_ "github.com/samebit/samebit/internal/cpu"
	_ "github.com/samebit/samebit/internal/cuda"
	_ "github.com/samebit/samebit/internal/ref"
)

// BF16 is a bfloat16 number, kept as its 16 bits.
type BF16 = contract.BF16

// Precision is that of the router logits (R2).
type Precision int

const (
	FP32       Precision = iota // as the product gives them
	BF16Logits                  // rounded to BF16 afterwards, as Hugging Face and vLLM do
)

// Options are how a layer runs. The zero value is the default. RouterLogits and NormTopK say what is computed; the others
// change no bit.
type Options struct {
	Backend      string    // a name of backend.Names(); "" for cpu
	RouterLogits Precision // FP32 by default
	NormTopK     *bool     // in place of the checkpoint's norm_topk_prob (R4); nil to keep it
	AllowReject  bool      // let a call with rejected tokens (R13) return without an error
	Workers      int       // goroutines of a CPU backend; 0 for one a processor
	Device       int       // number of the GPU that a GPU's backend runs on
	MaxTokens    int       // tokens worked on at a time, which bounds the workspace; 0 for 4096

	// Recompute has a tape hold x and the routes alone, and Backward make g, u and h again from them. No bit changes. At
	// Qwen3-Next's shape a tape is 6.4 kB a token in place of 62.7. On ranks x goes to the experts' owners once more.
	Recompute bool

	// Ranks, where it is not nil, spreads the layer over ranks: see package parallel. Each rank opens the layer, calls the same
	// methods in the same order, and gives its own tokens. The other methods then must not be called concurrently.
	Ranks backend.Spreader

	// Progress, where it is not nil, is told while weights are loaded, or refreshed, how many of their bytes have been. Its calls
	// come one at a time, from any goroutine.
	Progress func(done, total int64)
}

const defaultMaxTokens = 4096

// open opens the backend that the options name.
func (o Options) open() (backend.Backend, error) {
	name := o.Backend
	if name == "" {
		name = "cpu"
	}
	b, err := backend.Open(name, backend.Options{Workers: o.Workers, Device: o.Device})
	if err == nil && o.Ranks != nil {
		b = o.Ranks.Spread(b)
	}
	return b, err
}

// ForwardOption is what one Forward may be asked beyond its tokens.
type ForwardOption func(*forward)

// Train keeps a tape for Backward. The bits of the results are the same.
func Train(f *forward) { f.train = true }

// Replay uses these ids [T,K], in their order, in place of selection; the weights still come from the live logits. A row
// of -1 throughout is padding: it does no work and yields zeros (R3).
func Replay(ids []int32) ForwardOption {
	return func(f *forward) { f.replay, f.replaying = ids, true }
}
