// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package cuda

import (
	"embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/internal/cuda/driver"
	"github.com/samebit/samebit/internal/cuda/image"
)

//go:embed kernels
var sources embed.FS // in the test's binary, since that is what a machine with a GPU gets

func kernelSource(t *testing.T, name string) string {
	t.Helper()
	text, err := sources.ReadFile("kernels/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The tables say what the kernels' sources say, also where there is no GPU to show it.
func TestTablesAreTheSources(t *testing.T) {
	cutOf := func(g Tiling) Tiling { // of gate and up
		if g.Other != nil {
			return *g.Other
		}
		return g
	}
	for name, c := range map[string]struct {
		file, macro string
		table       []Tiling
		kernels     func(g Tiling) (cut Tiling, kernels []int)
	}{
		"forward":  {"experts.cu", "EXPERTS", Tilings[:], func(g Tiling) (Tiling, []int) { return g, []int{g.GateUp, g.Down} }},
		"down":     {"backward_down.cu", "DOWN_BACKWARD", BackwardTilings[:], func(g Tiling) (Tiling, []int) { return g, []int{g.Down} }},
		"backward": {"backward_gate_up.cu", "GATE_UP_BACKWARD", BackwardTilings[:], func(g Tiling) (Tiling, []int) { return cutOf(g), []int{cutOf(g).GateUp} }},
	} {
		var want, have []string
		for _, line := range strings.Split(kernelSource(t, c.file), "\n") {
			if strings.HasPrefix(line, c.macro+"(") {
				have = append(have, line)
			}
		}
		for _, g := range c.table {
			cut, kernels := c.kernels(g)
			line := fmt.Sprintf("%s(%d, %d, %d, %d, %d)", c.macro, cut.Copies, cut.Most, cut.Step, cut.Stages, cut.Cluster)
			if !slices.Contains(want, line) {
				want = append(want, line)
			}
			kernel := fmt.Sprintf("_%dx%dx%d", cut.Copies, cut.Most, cut.Cluster)
			for _, k := range kernels {
				if !strings.Contains(image.Kernels[k], kernel) {
					t.Errorf("%s: kernel %s: need one of %s", name, image.Kernels[k], kernel)
				}
			}
		}
		if fmt.Sprint(have) != fmt.Sprint(want) {
			t.Errorf("%s: %s has %v, the table %v", name, c.file, have, want)
		}
	}
}

func TestNumbersAreTheSources(t *testing.T) {
	for _, c := range []struct {
		file, name string
		want       int
	}{
		{"route.cu", "segments_tokens", segmentTokens},
		{"route.cu", "logits_tokens", logitTokens},
		{"route.cu", "logits_few", logitFew},
		{"route.cu", "logits_many", logitMany},
		{"plan.cu", "plan_threads", planThreads},
		{"plan.cu", "count_threads", countThreads},
		{"fold.cuh", "fold_calls", foldCalls},
		{"fold_ring.cuh", "stages", foldStages},
		{"fold_ring.cuh", "bars_bytes", foldBarsBytes},
		{"fold_ring.cuh", "slab_rows", foldSlabRows},
		{"fold_ring.cuh", "out_rows", foldOutRows},
	} {
		m := regexp.MustCompile(`constexpr int [^;]*\b` + c.name + ` = (\d+)`).FindStringSubmatch(kernelSource(t, c.file))
		if m == nil {
			t.Errorf("%s has no %s", c.file, c.name)
		} else if n, _ := strconv.Atoi(m[1]); n != c.want {
			t.Errorf("%s: %s is %d, here %d", c.file, c.name, n, c.want)
		}
	}
}

// The order in which weights are brought is chosen twice, by the host's maps and by the kernels: of the width as it is, and not as it
// is padded.
func TestPairsAreTheSources(t *testing.T) {
	source := kernelSource(t, "experts.cu")
	for _, rule := range []string{"gate_up_pairs(int width) { return width % 16 == 0; }", "down_pairs(int hidden) { return hidden % 32 == 0; }"} {
		if !strings.Contains(source, rule) {
			t.Errorf("experts.cu does not say %q", rule)
		}
	}
	const n = 3
	for width := 1; width <= 80; width++ {
		w, h := pad(width), pad(72)
		gateUp, down := gateUpRows(0, n, 72, width), downRows(0, n, width, 40)
		paired := sizes(h, 8, 2, n*w/16, 2)
		if got := slices.Equal(gateUp.Sizes, paired); got != (width%16 == 0) {
			t.Errorf("width %d: gate and up are %v, paired: %t", width, gateUp.Sizes, got)
		}
		if got := slices.Equal(down.Sizes, sizes(40, 16, n*width/32, 2)); got != (width%32 == 0) {
			t.Errorf("hidden %d: down is %v, paired: %t", width, down.Sizes, got)
		}
		for _, m := range []driver.Tensor{gateUp, down} { // a copy is of as many rows, whatever their order
			rows := uint32(1)
			for _, n := range m.Box[1:] {
				rows *= n
			}
			if m.Box[0] != stageTerms || rows != copyRows {
				t.Errorf("width %d: box %v", width, m.Box)
			}
		}
	}
}

// GPUs of another kind are refused, and so is one whose tensor cores do not give the law's answers, as the fake's, which gives none (R14).
func TestRefused(t *testing.T) {
	for v, want := range map[[2]int]bool{{8, 0}: true, {8, 9}: true, {9, 0}: false, {9, 1}: true, {10, 0}: true} {
		gpu, err := driver.OpenFake(&driver.Fake{Major: v[0], Minor: v[1]})
		if err != nil {
			t.Fatal(err)
		}
		if err := refused(gpu); (err != nil) != want {
			t.Errorf("sm_%d%d: got %v, want an error: %t", v[0], v[1], err, want)
		}
	}
	b, _ := fakeBackend(t)
	if need := (*backend.UnsupportedError)(nil); !errors.As(b.knownAnswers(), &need) {
		t.Error("a GPU that multiplies nothing is taken")
	}
}
