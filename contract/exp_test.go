// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/samebit/samebit/contract"
)

// The ends of exp's range (R4): the last inputs that do not give +Inf and +0.
const expLast, expFirst = 0x42B17217, 0xC2CFF1B4

// TestExp walks exp's inputs, by a stride or with -exhaustive all 2^32 of them. It holds the bits of every result to a
// digest, the error to less than one unit in the last place of the true value, and the results to be monotone.
func TestExp(t *testing.T) {
	start, step := time.Now(), stride()
	var mu sync.Mutex
	var worst float64
	var worstAt float32
	var falls atomic.Int64
	sums := make([][]byte, 256)
	inParallel(len(sums), func(i int) {
		hash, buffer := sha256.New(), make([]byte, 0, 1<<16)
		var largest float64
		var at float32
		// Away from zero exp grows where x is positive and falls where it is negative, from one chunk to the next too.
		last := contract.Exp(f32(uint32(max(i<<24-1, 0))))
		if i == 128 {
			last = 1
		}
		for b := uint64(i) << 24; b < uint64(i+1)<<24; b += step {
			x := f32(uint32(b))
			y := contract.Exp(x)
			if e := expError(x, y); e > largest {
				largest, at = e, x
			}
			if i < 128 && y < last || i >= 128 && y > last {
				falls.Add(1)
			}
			last = y
			if buffer = binary.LittleEndian.AppendUint32(buffer, math.Float32bits(y)); len(buffer) == cap(buffer) {
				hash.Write(buffer)
				buffer = buffer[:0]
			}
		}
		hash.Write(buffer)
		sums[i] = hash.Sum(nil)
		mu.Lock()
		defer mu.Unlock()
		if largest > worst {
			worst, worstAt = largest, at
		}
	})
	if worst >= 1 {
		t.Errorf("error of %.4f ulp at %s: need less than 1", worst, show(worstAt))
	}
	if n := falls.Load(); n > 0 {
		t.Errorf("not monotone at %d of the inputs", n)
	}
	sum := sha256.Sum256(bytes.Join(sums, nil))
	checkDigest(t, fmt.Sprintf("exp/every-%d", step), sum[:])
	t.Logf("every %d. of 2^32 inputs: largest error %.4f ulp at %s; %v", step, worst, show(worstAt), time.Since(start).Round(time.Millisecond))
}

// expError is y's distance from e^x in units of the true value's last place, 0 beyond exp's range.
func expError(x, y float32) float64 {
	if x != x || x > f32(expLast) || x < f32(expFirst) {
		return 0
	}
	exact := math.Exp(float64(x))
	_, e := math.Frexp(exact)
	return math.Abs(float64(y)-exact) / math.Ldexp(1, max(e-24, -149))
}

// TestExpEnds: the thresholds are FP32 numbers, and beyond them nothing is computed.
func TestExpEnds(t *testing.T) {
	for _, c := range []struct{ x, want uint32 }{
		{expLast, 0x7F7FFF84}, {expLast + 1, 0x7F800000}, {0x7F7FFFFF, 0x7F800000}, {0x7F800000, 0x7F800000},
		{expFirst, 0x00000001}, {expFirst + 1, 0}, {0xFF7FFFFF, 0}, {0xFF800000, 0},
		{0, 0x3F800000}, {0x80000000, 0x3F800000}, {0x00000001, 0x3F800000}, {0x80000001, 0x3F800000},
		{0x7F800001, 0x7FFFFFFF}, {0x7FC00000, 0x7FFFFFFF}, {0xFFFFFFFF, 0x7FFFFFFF},
	} {
		same(t, fmt.Sprintf("exp of %s", show(f32(c.x))), contract.Exp(f32(c.x)), f32(c.want))
	}
}
