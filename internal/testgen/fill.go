// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package testgen

import (
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/contract"
)

// The scales of the inputs that this package makes.
const (
	WeightScale   = 13 // standard deviation 0.018
	TokenScale    = 7  // standard deviation 1.155
	UpstreamScale = 7
)

const (
	golden   = 0x9E3779B97F4A7C15
	maxScale = 100

	tokenRole    = 16
	upstreamRole = 17
)

// table holds the value of each sum of four bytes, 0 to 1020; with 1024 places an index of 10 bits needs no check.
type table [1024]contract.BF16

// Stream is the stream of a part of a layer's weights.
func Stream(layer int, p checkpoint.Part) uint64 {
	role := uint64(p.Role)
	if p.Shared && p.Role != checkpoint.SharedGate {
		role += 3
	}
	return uint64(layer)<<32 | role<<24 | uint64(p.Expert)
}

// Fill sets dst to values 0, 1, ... of a stream.
func Fill(dst []contract.BF16, seed, stream uint64, scale int) { FillAt(dst, 0, seed, stream, scale) }

// FillAt sets dst to values offset, offset+1, ... of a stream. It uses all processors where there is work for them.
func FillAt(dst []contract.BF16, offset int, seed, stream uint64, scale int) {
	if scale < 0 || scale > maxScale {
		panic(fmt.Sprintf("testgen: scale %d: need 0 to %d", scale, maxScale))
	}
	var t table
	for sum := range t {
		t[sum] = contract.Round(float32(math.Ldexp(float64(sum-510), -scale)))
	}
	key := mix(seed+golden) ^ mix(stream+0xD1B54A32D192ED03)
	const least = 1 << 15 // values that are worth a goroutine
	if len(dst) < 2*least {
		fill(dst, offset, key, &t)
		return
	}
	part := max(least, (len(dst)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var workers sync.WaitGroup
	for begin := 0; begin < len(dst); begin += part {
		workers.Go(func() { fill(dst[begin:min(begin+part, len(dst))], offset+begin, key, &t) })
	}
	workers.Wait()
}

func fill(dst []contract.BF16, offset int, key uint64, t *table) {
	if len(dst) > 0 && offset%2 == 1 {
		_, dst[0] = pair(key, offset/2, t)
		dst, offset = dst[1:], offset+1
	}
	j := offset / 2
	for ; len(dst) >= 2; j++ {
		dst[0], dst[1] = pair(key, j, t)
		dst = dst[2:]
	}
	if len(dst) == 1 {
		dst[0], _ = pair(key, j, t)
	}
}

// pair makes the two values of word j.
func pair(key uint64, j int, t *table) (contract.BF16, contract.BF16) {
	const odd = 0x00FF_00FF_00FF_00FF
	word := mix(key + (uint64(j)+1)*golden)
	sums := word&odd + word>>8&odd // four sums of two bytes
	sums += sums >> 16             // in the first and third place: of four
	return t[sums%1024], t[sums>>32%1024]
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// Tokens are T tokens of hidden size H, [T,H].
func Tokens(tokens, hidden int, seed uint64) []contract.BF16 {
	return filled(tokens*hidden, seed, tokenRole<<24, TokenScale)
}

// Upstream is the gradient of T tokens' outputs, [T,H].
func Upstream(tokens, hidden int, seed uint64) []contract.BF16 {
	return filled(tokens*hidden, seed, upstreamRole<<24, UpstreamScale)
}

func filled(n int, seed, stream uint64, scale int) []contract.BF16 {
	values := make([]contract.BF16, n)
	Fill(values, seed, stream, scale)
	return values
}
