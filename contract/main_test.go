// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	hexadecimal "encoding/hex"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/samebit/samebit/contract"
)

var (
	exhaustive = flag.Bool("exhaustive", false, "walk all 2^32 inputs of every function of one FP32 number (a minute or two)")
	update     = flag.Bool("update", false, "rewrite testdata/golden.json and testdata/digests.txt from the code")
)

// number is what results are made of.
type number interface {
	contract.BF16 | float32 | int32 | uint32
}

// bitsOf is v's bit pattern: results are compared by it and never by value, so that -0 is not +0 and a NaN is itself.
func bitsOf[T number](v T) uint32 {
	switch v := any(v).(type) {
	case float32:
		return math.Float32bits(v)
	case contract.BF16:
		return uint32(v)
	case int32:
		return uint32(v)
	case uint32:
		return v
	}
	panic("unreachable")
}

// show writes v's bits in hex and its value.
func show[T number](v T) string {
	if b, is := any(v).(contract.BF16); is {
		return fmt.Sprintf("%04X (%v)", uint16(b), b.Float32())
	}
	return fmt.Sprintf("%08X (%v)", bitsOf(v), v)
}

// sameBits demands equal bits of two matrices in row-major order; it says how many differ and where the first is.
func sameBits[T number](t *testing.T, what string, columns int, got, want []T) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d elements: need %d", what, len(got), len(want))
		return
	}
	count, first := 0, 0
	for i := range got {
		if bitsOf(got[i]) != bitsOf(want[i]) {
			if count == 0 {
				first = i
			}
			count++
		}
	}
	if count > 0 {
		t.Errorf("%s: %d of %d differ, first at [%d,%d]: got %s, want %s",
			what, count, len(got), first/columns, first%columns, show(got[first]), show(want[first]))
	}
}

// same is sameBits for one number.
func same[T number](t *testing.T, what string, got, want T) {
	t.Helper()
	if bitsOf(got) != bitsOf(want) {
		t.Errorf("%s: got %s, want %s", what, show(got), show(want))
	}
}

func f32(bits uint32) float32 { return math.Float32frombits(bits) }

// power is 2^n in BF16, n from -133 to 127.
func power(n int) contract.BF16 { return contract.Round(float32(math.Ldexp(1, n))) }

// normals are n random BF16 numbers, normally distributed.
func normals(r *rand.Rand, n int, scale float64) []contract.BF16 {
	v := make([]contract.BF16, n)
	for i := range v {
		v[i] = contract.Round(float32(r.NormFloat64() * scale))
	}
	return v
}

// inParallel calls visit(0..n-1), as many at once as there are processors.
func inParallel(n int, visit func(i int)) {
	var wait sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for i := range next {
				visit(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wait.Wait()
}

const digestFile = "testdata/digests.txt"

// checkDigest compares a digest of many results with the one in digests.txt, or puts it there under -update. Every
// platform has the same file, so a digest that holds shows that a platform gives the same bits as the others.
func checkDigest(t *testing.T, name string, sum []byte) {
	t.Helper()
	text, err := os.ReadFile(digestFile)
	if err != nil && !*update {
		t.Fatal(err)
	}
	line := name + " " + hexadecimal.EncodeToString(sum)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, name+" ") })
	switch {
	case at >= 0 && lines[at] == line:
	case !*update && at < 0:
		t.Errorf("%s: no digest of that name in %s: run with -update", name, digestFile)
	case !*update:
		t.Errorf("digest differs:\n got %s\nwant %s", line, lines[at])
	default:
		if at < 0 {
			lines = append(lines, line)
		} else {
			lines[at] = line
		}
		slices.Sort(lines)
		text := strings.TrimSpace(strings.Join(lines, "\n")) + "\n"
		if err := os.WriteFile(digestFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
