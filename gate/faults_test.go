// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"strings"
	"testing"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/contract"
)

// TestFaults breaks a backend in the ways in which others were broken: the cases whose promise the fault breaks must fail, and
// name the first element that differs; those of another promise must pass.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			breakBackend(f.name, f.hooks)
			s, err := Synthetic("tiny", samebit.Options{Backend: f.name})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			s.Tokens = []int{8, 64, 128}
			r, err := Run([]*Subject{s}, slices.Concat(f.fail, f.pass), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range r.Results {
				want := Pass
				if slices.Contains(f.fail, x.ID) {
					want = Fail
				}
				if x.Verdict != want {
					t.Errorf("%s: %s: need %s: %s", x.ID, x.Verdict, want, x.Why())
				}
				if x.ID != f.fail[0] {
					continue
				}
				if !strings.Contains(x.Why(), f.why) {
					t.Errorf("%s says %q: need %q in it", x.ID, x.Why(), f.why)
				}
				if f.also != "" && !slices.ContainsFunc(x.Compared, func(c Comparison) bool {
					return !c.Same() && strings.HasPrefix(c.String(), f.also)
				}) {
					t.Errorf("%s does not say %q, too", x.ID, f.also)
				}
			}
		})
	}
}

var faults = []struct {
	name  string
	hooks hooks
	fail  []string
	why   string // what the first of those says
	also  string // how another comparison of it that fails begins, which asks neither the contract nor another run
	pass  []string
}{
	{
		name: "last bit by batch",
		hooks: hooks{combine: func(l *brokenLayer, a backend.Combine) {
			if a.Rows.Tokens > 32 {
				edit(l, a.Y, func(y []BF16) { y[3*l.shape.Hidden+17] ^= 1 })
			}
		}},
		fail: []string{"chunked-64", "reversed-64", "every-count", "probe-8", "oracle"},
		why:  "y: 1 of 8192 differ, first at token 3, column 17: have ",
		pass: []string{"chunked-8", "reversed-8", "replay-live", "repeats", "ranks-gradients"},
	},
	{
		name:  "segments end with the micro-batch",
		hooks: hooks{add: func(f backend.Fold) { f.Flush() }},
		fail:  []string{"micro-batches-64"},
		why:   "dW gate: ",
		pass:  []string{"chunked-64", "probe-64", "padding", "oracle", "repeats"},
	},
	{
		name: "logits rounded in large batches",
		hooks: hooks{route: func(l *brokenLayer, a backend.Route) error {
			if a.Tokens > 32 {
				return l.bf16.Route(a)
			}
			return l.Layer.Route(a)
		}},
		fail: []string{"chunked-64", "every-count", "ranks-routes", "float64-routes"},
		why:  "logits: ",
		pass: []string{"chunked-8", "repeats"},
	},
	{
		name: "padding leaks into dW",
		hooks: hooks{planBackward: func(l *brokenLayer, a backend.PlanBackward) {
			edit(l, a.DY, func(dy []BF16) {
				for t := range a.Rows.Tokens {
					if row := dy[t*l.shape.Hidden : (t+1)*l.shape.Hidden]; contract.AllZero(row) {
						row[0] = 0x0080
					}
				}
			})
		}},
		fail: []string{"padding", "probe-64"},
		why:  "ahead, +0: dW ",
		pass: []string{"chunked-64", "micro-batches-64", "replay-live"},
	},
	{
		name: "rows of -1 go to the shared expert",
		hooks: hooks{route: func(l *brokenLayer, a backend.Route) error {
			err := l.Layer.Route(a)
			status := look[int32](l, a.Status)
			edit(l, a.IDs, func(ids []int32) {
				for i := range ids {
					if t := i / l.shape.TopK; contract.Status(status[t]) == contract.Padding {
						ids[i] = int32(i % l.shape.TopK)
					}
				}
			})
			edit(l, a.Status, func(s []int32) {
				for t := range s {
					if contract.Status(s[t]) == contract.Padding {
						s[t] = int32(contract.Live)
					}
				}
			})
			return err
		}},
		fail: []string{"replay-padding"},
		why:  "the tokens: dW ",
		pass: []string{"replay-live", "padding", "rejected"},
	},
	{
		name: "one bit now and then",
		hooks: hooks{combine: func(l *brokenLayer, a backend.Combine) {
			if l.calls == 9 {
				edit(l, a.Y, func(y []BF16) { y[0] ^= 1 })
			}
		}},
		fail: []string{"repeats"},
		why:  "repeat 5: y: 1 of 6144 differ, first at token 0, column 0: have ",
	},
	{
		name: "training rounds h otherwise",
		hooks: hooks{gateUp: func(l *brokenLayer, a backend.GateUp) {
			if a.Routed.G != nil {
				edit(l, a.Routed.H, func(h []BF16) { h[0] ^= 3 })
			}
		}},
		fail: []string{"training", "oracle"},
		why:  "y: ",
		pass: []string{"repeats", "replay-live"},
	},
	{
		name:  "an element is not written",
		hooks: hooks{unwritten: 4},
		fail:  []string{"poisoned-memory", "oracle"},
		why:   "y: 1 of 8320 differ, first at token 0, column 4: have FFFF (NaN), need ",
	},
	{
		name: "a rejected token harms its neighbour",
		hooks: hooks{combine: func(l *brokenLayer, a backend.Combine) {
			status := look[int32](l, a.Status)
			if t := slices.Index(status, int32(contract.Rejected)); t > 0 {
				edit(l, a.Y, func(y []BF16) { y[(t-1)*l.shape.Hidden] ^= 1 })
			}
		}},
		fail: []string{"rejected"},
		why:  "the other tokens: y: ",
		pass: []string{"oracle", "padding"},
	},
	{
		name: "rejected tokens are not counted",
		hooks: hooks{combine: func(l *brokenLayer, a backend.Combine) {
			edit(l, a.Status, func(s []int32) {
				for t := range s {
					if contract.Status(s[t]) == contract.Rejected {
						s[t] = int32(contract.Live)
					}
				}
			})
		}},
		fail: []string{"rejected"},
		why:  "tokens rejected, and the first: have ",
		also: "the call returns a RejectedError: have false, need true",
		pass: []string{"oracle", "padding"},
	},
	{
		name: "replayed weights have another last bit",
		hooks: hooks{route: func(l *brokenLayer, a backend.Route) error {
			err := l.Layer.Route(a)
			if a.Replay != nil {
				edit(l, a.Weights, func(w []float32) { w[5] *= 1 + 1.0/(1<<23) })
			}
			return err
		}},
		fail: []string{"replay-live"},
		why:  "replayed: weights: 1 of 256 differ, first at token 1, slot 1: have ",
		pass: []string{"oracle", "chunked-64"},
	},
	{
		name: "h has few bits",
		hooks: hooks{gateUp: func(l *brokenLayer, a backend.GateUp) {
			edit(l, a.Routed.H, func(h []BF16) {
				for i := range h {
					h[i] &^= 3
				}
			})
		}},
		fail: []string{"float64-accuracy", "oracle"},
		why:  "y: ",
		pass: []string{"chunked-64", "probe-64", "float64-routes"},
	},
	{
		name: "equal logits go to the higher expert",
		hooks: hooks{route: func(l *brokenLayer, a backend.Route) error {
			err := l.Layer.Route(a)
			logits := look[float32](l, a.Logits)
			edit(l, a.IDs, func(ids []int32) {
				for i := range ids {
					if t := logits[i/l.shape.TopK*l.shape.Experts:]; i%2 == 0 && t[ids[i]] == t[ids[i+1]] {
						ids[i], ids[i+1] = ids[i+1], ids[i]
					}
				}
			})
			return err
		}},
		fail: []string{"router-modes"},
		why:  "ids: ",
		also: "ties go to the lower id: have token ",
		pass: []string{"oracle", "chunked-64", "float64-routes"},
	},
	{
		name:  "panics",
		hooks: hooks{combine: func(*brokenLayer, backend.Combine) { panic("no such unit") }},
		fail:  []string{"training", "repeats"},
		why:   "panic: no such unit",
	},
}

// Experts stand in pairs of equal logits, so that the odd one of a pair may be taken only right behind the even one: also as the first
// of a token, behind whatever the token before ends with.
func TestWrongTie(t *testing.T) {
	c := &check{Subject: &Subject{Shape: contract.Shape{Experts: 8, TopK: 3}}}
	for want, ids := range map[string][]int32{
		"":                            {4, 5, 0, 2, 3, 6, -1, -1, -1},
		"token 0 slot 0 has expert 5": {5, 4, 0, 2, 3, 6},
		"token 1 slot 0 has expert 3": {4, 5, 2, 3, 2, 6},
		"token 1 slot 2 has expert 7": {4, 5, 0, 2, 3, 7},
		"token 0 slot 1 has expert 5": {2, 5, 4, 2, 3, 6},
	} {
		if have := c.wrongTie(ids); have != want {
			t.Errorf("%v: %q, want %q", ids, have, want)
		}
	}
}
