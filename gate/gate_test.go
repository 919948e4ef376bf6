// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/checkpoint/testdata"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
	"github.com/samebit/samebit/parallel"
)

// TestGate takes the embedded checkpoint through every case, on other workers and by the contract's stages: one set of digests.
func TestGate(t *testing.T) {
	tokens, runs := []int{8, 64, 128}, []samebit.Options{{}, {Workers: 3}, {Backend: "ref"}}
	if testing.Short() {
		tokens, runs = []int{8, 16}, runs[1:2]
	}
	var first *Report
	for _, o := range runs {
		s, err := Embedded(o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.Tokens = tokens
		if o.Backend == "ref" {
			s.Tokens = tokens[:1]
		}
		r, err := Run([]*Subject{s}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !r.Passed() {
			for _, x := range r.Results {
				if x.Verdict == Fail {
					t.Errorf("%+v: %s: %s", o, x.ID, x.Why())
				}
			}
		}
		if first == nil {
			first = r
		}
		for _, x := range r.Results {
			i := slices.IndexFunc(first.Results, func(y Result) bool { return x.ID == y.ID })
			if y := first.Results[i]; o.Backend != "ref" && x.Digest != y.Digest {
				t.Errorf("%+v: %s: digest %s: need %s", o, x.ID, x.Digest, y.Digest)
			}
		}
	}
}

// TestFloat64 measures the float64 layer, and the cpu backend, against transformers on every family of models.
func TestFloat64(t *testing.T) {
	folders := testdata.All()
	if testing.Short() {
		folders = folders[:1]
	}
	for _, f := range folders {
		t.Run(f.Name, func(t *testing.T) {
			s, err := fromFS(f.Name, f.FS, 1, samebit.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			r, err := Run([]*Subject{s}, []string{"transformers", "float64-accuracy", "round-trip", "expert-hashes"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range r.Results {
				if x.Verdict != Pass {
					t.Errorf("%s: %s: %s", x.ID, x.Verdict, x.Why())
				}
			}
		})
	}
}

func TestRanks(t *testing.T) {
	breakBackend("rank with another router", hooks{spec: changeRouter})
	a, err := Synthetic("tiny", samebit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := a.open(samebit.Options{Backend: "rank with another router"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.Tokens, a.Ranks = []int{8, 64}, append(a.Ranks, b...)
	r, err := Run([]*Subject{a}, []string{"ranks-*"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"rank 1 against rank 0: logits: ", "rank 1 against rank 0: dW router: "} {
		if x := r.Results[i]; x.Verdict != Fail || !strings.HasPrefix(x.Why(), want) {
			t.Errorf("%s: %s: %s: need %q", x.ID, x.Verdict, x.Why(), want)
		}
	}
	if r.Subjects[0].Ranks != 2 {
		t.Errorf("%d ranks: need 2", r.Subjects[0].Ranks)
	}
}

// TestGrid takes the embedded checkpoint through every case on the ranks of grids: the digests are those of one process, but
// where ranks are counted.
func TestGrid(t *testing.T) {
	grids, tokens := []parallel.Grid{{}, {TP: 2, EP: 2}, {TP: 1, EP: 3}, {TP: 4, EP: 1}}, []int{8, 64}
	if testing.Short() {
		grids, tokens = grids[:2], tokens[:1]
	}
	digests := map[string]string{}
	for _, grid := range grids {
		var ranks []*parallel.Rank
		if grid.Ranks() > 0 {
			var err error
			if ranks, err = LocalRanks(grid); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Embedded(samebit.Options{}, ranks...)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.Tokens = tokens
		r, err := Run([]*Subject{s}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range r.Results {
			if x.Verdict != Pass && x.Verdict != Skip {
				t.Errorf("%v: %s: %s", grid, x.ID, x.Why())
			}
			if need, ok := digests[x.ID]; ok && x.Digest != need && !strings.HasPrefix(x.ID, "ranks-") {
				t.Errorf("%v: %s: digest %s: need %s", grid, x.ID, x.Digest, need)
			}
			digests[x.ID] = x.Digest
		}
		if n := max(1, grid.Ranks()); r.Subjects[0].Ranks != n {
			t.Errorf("%v: %d ranks: need %d", grid, r.Subjects[0].Ranks, n)
		}
	}
}

// A rank that is not like the others is found.
func TestBrokenRank(t *testing.T) {
	var loaded atomic.Int32
	shape, err := testgen.Shape("tiny")
	if err != nil {
		t.Fatal(err)
	}
	breakBackend("one rank with another router", hooks{spec: func(s *backend.Spec) {
		if s.Shape.Width == 0 && s.Shape.Hidden == shape.Hidden && loaded.Add(1) == 1 {
			changeRouter(s)
		}
	}})
	ranks, err := LocalRanks(parallel.Grid{TP: 1, EP: 2})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Synthetic("tiny", samebit.Options{Backend: "one rank with another router"}, ranks...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Options.Backend, s.Tokens = "cpu", []int{64}
	r, err := Run([]*Subject{s}, []string{"grid", "oracle"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Results {
		if x.Verdict != Fail || !strings.Contains(x.Why(), "logits: ") {
			t.Errorf("%s: %s: %s: need a failure about logits", x.ID, x.Verdict, x.Why())
		}
	}
}

// TestCheckpointClaims gives the checks of a folder what is not as it must be.
func TestCheckpointClaims(t *testing.T) {
	s, err := Embedded(samebit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	why := func(run func(*check)) string {
		r := perform(Case{ID: "claims", run: run}, s)
		if r.Verdict != Fail {
			t.Errorf("%s: need a failure", r.Verdict)
		}
		return r.Why()
	}
	exported := func(change func(dir string) error) func(*check) {
		return func(c *check) {
			dir := filepath.Join(t.TempDir(), "exported")
			c.must(s.source.Export(dir, nil, nil))
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			c.sameFiles(dir)
		}
	}
	for want, run := range map[string]func(*check){
		"config.json: have none, need ":          exported(func(dir string) error { return os.Remove(filepath.Join(dir, "config.json")) }),
		"config.json: have 44136fa355b3678a":     exported(func(dir string) error { return os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o666) }),
		"tensors and files of the folder: have ": exported(func(dir string) error { return os.WriteFile(filepath.Join(dir, "more"), nil, 0o666) }),
		"some: y: have none, need y":             func(c *check) { c.same("some", nil, []tensor{{name: "y"}}) },
	} {
		if have := why(run); !strings.HasPrefix(have, want) {
			t.Errorf("%s: need %q", have, want)
		}
	}
	layer := *s.layer
	layer.Tensors = slices.Clone(layer.Tensors)
	layer.Tensors[0].Name += ".old"
	s.layer = &layer
	if have := why(roundTrip); !strings.HasPrefix(have, "exported: have "+strings.TrimSuffix(layer.Tensors[0].Name, ".old")+", need ") {
		t.Errorf("a tensor of another name: %s", have)
	}
}

// TestExpertHashes swaps two experts' gates, which have one shape, and the shared expert's two.
func TestExpertHashes(t *testing.T) {
	s, err := Embedded(samebit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := *s.Weights
	w.Experts = slices.Clone(w.Experts)
	w.Experts[3].Gate, w.Experts[5].Gate = w.Experts[5].Gate, w.Experts[3].Gate
	w.Shared = &contract.Expert{Gate: w.Shared.Up, Up: w.Shared.Gate, Down: w.Shared.Down}
	s.Weights = &w
	cases, err := Match(Cases(), "expert-hashes", "round-trip")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"exported: mlp.experts.3.gate_proj.weight: ", "expert 3: have "} {
		if r := perform(cases[i], s); r.Verdict != Fail || !strings.HasPrefix(r.Why(), want) {
			t.Errorf("%s: %s: %s: need %q", r.ID, r.Verdict, r.Why(), want)
		}
	}
	found := slices.ContainsFunc(perform(cases[1], s).Compared, func(c Comparison) bool {
		return strings.HasPrefix(c.String(), "shared expert: have ")
	})
	if !found {
		t.Error("expert-hashes does not say that the shared expert is another")
	}
}

func TestCases(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Cases() {
		if seen[c.ID] || !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString(c.ID) {
			t.Errorf("case id %q: need one of its own, in kebab case", c.ID)
		}
		seen[c.ID] = true
	}
	for _, id := range []string{"round-trip", "ranks-routes", "chunked-8", "reversed-1024", "training", "ranks-gradients", "probe-256"} {
		if !seen[id] {
			t.Errorf("no case %s", id)
		}
	}
	if c, err := Match(Cases(), "chunked-*", "oracle"); err != nil || len(c) != 5 {
		t.Errorf("%d cases, %v: need 5", len(c), err)
	}
	for _, globs := range [][]string{{"nosuch"}, {"["}, {"oracle", "nosuch"}} {
		last := globs[len(globs)-1]
		if _, err := Match(Cases(), globs...); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("case %q", last)) {
			t.Errorf("%v: found error %v", globs, err)
		}
	}
	s := &Subject{Name: "few", Tokens: []int{7}}
	if _, err := Run([]*Subject{s}, nil, nil); err == nil || !strings.Contains(err.Error(), "need at least 8") {
		t.Errorf("7 tokens: %v", err)
	}
}

func TestCuts(t *testing.T) {
	for n := 1; n < 300; n++ {
		for _, cuts := range [][]int{odd(n), cutsOf(n, 7)} {
			if sum := sum(cuts); sum != n {
				t.Errorf("%v: sum %d: need %d", cuts, sum, n)
			}
		}
	}
	if got := show([]int{3, 3, 3, 1}); got != "3 x 3 + 1" {
		t.Error(got)
	}
}

func sum(v []int) (n int) {
	for _, x := range v {
		n += x
	}
	return n
}

// TestReport writes a report that has a failure, a skip and a figure that is no number.
func TestReport(t *testing.T) {
	s, err := Embedded(samebit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Tokens = []int{8, 16}
	r, err := Run([]*Subject{s}, []string{"chunked-*", "transformers"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := Case{ID: "odd", Family: "odd", Title: "<odd>", run: func(c *check) {
		c.measure("nothing", math.NaN(), 1)
		c.same("a", []tensor{matrix("m", "row", "column", 2, []float32{1, 2, 3, 4})}, []tensor{matrix("m", "row", "column", 2, []float32{1, 2, 3, 5})})
	}}
	r.add(perform(c, s))
	r.add(perform(Case{ID: "none", Family: "none", run: func(c *check) { c.skip("no reason") }}, s))
	if r.Fail != 1 || r.Skip != 1 || r.Pass != 3 || r.Passed() {
		t.Errorf("%d passed, %d failed, %d skipped", r.Pass, r.Fail, r.Skip)
	}
	var text, page bytes.Buffer
	if err := r.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(text.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if got, want := back.Results[3].Why(), "a: m: 1 of 4 differ, first at row 1, column 1: have 40800000 (4), need 40A00000 (5)"; got != want {
		t.Errorf("%s: need %s", got, want)
	}
	if back.Results[0].Digest == "" || back.Contract != contract.Version {
		t.Error("no digest, or no version")
	}
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	html := page.String()
	for _, outside := range []string{"http:", "https:", "src=", "<script", "@import", "<odd>"} {
		if strings.Contains(html, outside) {
			t.Errorf("the page has %q", outside)
		}
	}
	for _, inside := range []string{"&lt;odd&gt;", "8 tokens", "no reason", "row 1, column 1", r.Results[0].Digest, "<rect"} {
		if !strings.Contains(html, inside) {
			t.Errorf("the page has no %q", inside)
		}
	}
}
