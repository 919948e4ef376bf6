// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math/rand/v2"
	"testing"

	"github.com/samebit/samebit/contract"
)

// digest hashes results bit by bit.
type digest struct{ hash.Hash }

func newDigest() digest { return digest{sha256.New()} }

func hashBits[T number](d digest, v ...T) {
	buffer := make([]byte, 0, 4*len(v))
	for _, x := range v {
		buffer = binary.LittleEndian.AppendUint32(buffer, bitsOf(x))
	}
	d.Write(buffer)
}

// TestSwiGLUDigest takes all 2^16 BF16 gate values with some ups through SwiGLU, forward and backward (R6, R8).
func TestSwiGLUDigest(t *testing.T) {
	forward, backward := newDigest(), newDigest()
	for i := range 1 << 16 {
		g := contract.BF16(i).Float32()
		for _, u := range []float32{1, -1.6180340, 3e-39, 65504, -0.00073242188, 0} {
			hashBits(forward, contract.SwiGLU(g, u))
			dg, du := contract.SwiGLUBackward(g, u, 0.7390851, 0.1234567)
			hashBits(backward, dg, du)
		}
	}
	checkDigest(t, "swiglu/every-gate", forward.Sum(nil))
	checkDigest(t, "swiglu-backward/every-gate", backward.Sum(nil))
}

// TestFunctionDigest takes random inputs of every exponent through the other functions.
func TestFunctionDigest(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	d := newDigest()
	for range 20000 {
		for _, kind := range tc16Kinds {
			hashBits(d, contract.TC16(kind.draw(r)))
		}
		f := f32(r.Uint32())
		hashBits(d, contract.Round(f))
		if f == f {
			hashBits(d, contract.Sigmoid(f)) // of a NaN it is a NaN whose bits nothing shows
		}
	}
	for n := range 200 {
		logits := make([]float32, n+1)
		for i := range logits {
			logits[i] = float32(r.NormFloat64() * 4)
		}
		ids := contract.Select(logits, 1+r.IntN(n+1))
		hashBits(d, ids...)
		hashBits(d, contract.Tree(logits))
		hashBits(d, contract.RouteWeights(logits, ids, true)...)
		hashBits(d, contract.RouteWeights(logits, ids, false)...)
	}
	checkDigest(t, "functions", d.Sum(nil))
}

// TestLayerDigest runs random shapes and tokens, forward and backward, live and not, selected and replayed, and hashes all
// that comes out. The same digest on amd64 at every level and on arm64 shows that no compiler fused or reordered anything.
func TestLayerDigest(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 16))
	d := newDigest()
	for range 60 {
		s := contract.Shape{Hidden: 1 + r.IntN(40), Experts: 1 + r.IntN(12), Width: 1 + r.IntN(24), SharedWidth: r.IntN(3) * 7, NormTopK: r.IntN(2) == 0}
		s.TopK = 1 + r.IntN(s.Experts)
		d.layer(r, s, 50)
	}
	checkDigest(t, "layer", d.Sum(nil))
	// More than one segment of logits and of tokens, the last ones not full, and trees that carry.
	wide := newDigest()
	for _, s := range []contract.Shape{
		{Hidden: 300, Experts: 5, TopK: 3, Width: 40, SharedWidth: 72, NormTopK: true},
		{Hidden: 264, Experts: 3, TopK: 2, Width: 33, SharedWidth: 0, NormTopK: false},
	} {
		wide.layer(r, s, 70)
	}
	checkDigest(t, "layer/wide", wide.Sum(nil))
}

// layer hashes what a random layer gives for random tokens.
func (d digest) layer(r *rand.Rand, s contract.Shape, tokens int) {
	l := randomLayer(r, s)
	l.BF16Logits = r.IntN(3) == 0
	grads := l.NewGradients()
	for range tokens {
		x, dy := normals(r, s.Hidden, 1), normals(r, s.Hidden, 1)
		token := l.Forward(disturb(r, x), randomReplay(r, s))
		dx := l.Backward(token, disturb(r, dy), grads)
		hashBits(d, token.Logits...)
		hashBits(d, token.Z)
		hashBits(d, token.IDs...)
		hashBits(d, token.Weights...)
		hashBits(d, token.Y...)
		hashBits(d, dx...)
	}
	grads.Flush()
	hashBits(d, everyGradient(grads)...)
}

// disturb makes one row in sixteen bad, zero or huge.
func disturb(r *rand.Rand, v []contract.BF16) []contract.BF16 {
	switch r.IntN(64) {
	case 0:
		v[r.IntN(len(v))] = nan
	case 1:
		v[r.IntN(len(v))] = inf
	case 2:
		clear(v)
	case 3:
		v[r.IntN(len(v))] = power(100)
	}
	return v
}

// randomReplay is no replay, padding or distinct ids.
func randomReplay(r *rand.Rand, s contract.Shape) []int32 {
	ids := make([]int32, s.TopK)
	switch r.IntN(8) {
	case 0:
		for k := range ids {
			ids[k] = -1
		}
	case 1, 2:
		for k, e := range r.Perm(s.Experts)[:s.TopK] {
			ids[k] = int32(e)
		}
	default:
		return nil
	}
	return ids
}
