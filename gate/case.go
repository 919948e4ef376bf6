// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"path"
	"slices"
)

// Case is one acceptance case.
type Case struct {
	ID     string   `json:"id"`               // stable: the family, and the token count where it has one
	Family string   `json:"family"`           // the cases that differ in the token count alone
	Title  string   `json:"title"`            // what must hold
	Rules  []string `json:"rules"`            // of the contract, that it rests on
	Tokens int      `json:"tokens,omitempty"` // how many tokens are compared, where that is the case's parameter

	run func(*check)
}

// DefaultTokens are the token counts of the cases that take one.
var DefaultTokens = []int{8, 64, 256, 1024}

// family is a row of the table of cases.
type family struct {
	id, title string
	rules     []string
	counts    func(tokens []int) []int // the token counts of its cases; nil for one case without
	run       func(*check)
}

// families are all cases, in the order that they run in. A broken checkpoint or router shows before what rests on it.
var families = []family{
	{"round-trip", "a checkpoint is exported and read back, every expert byte for byte", []string{"R0"}, nil, roundTrip},
	{"expert-hashes", "the hash of every expert is the file's", []string{"R0", "R12"}, nil, expertHashes},
	{"oracle", "the backend gives what the contract gives, one token at a time", all, nil, oracle},
	{"contract-bits", "the tiny checkpoint gives the bits that were kept, so that no two wrongs agree", all, nil, contractBits},
	{"router-modes", "equal logits go to the lower expert, in every way to route", []string{"R2", "R3", "R4", "R10"}, nil, routerModes},
	{"ranks-routes", "every rank routes alike", []string{"R2", "R3", "R4", "R12"}, nil, ranksRoutes},
	{"ranks-gradients", "every rank has the same router and shared-gate gradients", []string{"R10", "R12"}, nil, ranksGradients},
	{"grid", "ranks give what one process gives, forward and every gradient", append(slices.Clone(all), "R12"), nil, grid},
	{"chunked", "the full batch gives what its chunks give", forwardRules, every, chunked},
	{"reversed", "the full batch gives what it gives reversed", forwardRules, every, reversed},
	{"every-count", "the first tokens of a batch give what they give without the rest, at every count", forwardRules, nil, everyCount},
	{"training", "the training forward gives what the inference forward gives", []string{"R2", "R3", "R4", "R6", "R7"}, nil, training},
	{"probe", "tokens alone give what they give first, last and scattered among strangers, in every gradient",
		[]string{"R5", "R7", "R9", "R10", "R11"}, probes, probe},
	{"micro-batches", "one batch gives the gradients of any split into micro-batches", []string{"R10", "R11"}, splits, microBatches},
	{"padding", "tokens of zero gradient change no gradient, wherever they stand and of either sign", []string{"R9", "R11"}, nil, padding},
	{"replay-live", "replayed live routes give what the live routes give", []string{"R3", "R4"}, nil, replayLive},
	{"replay-padding", "a replayed row of -1 gives zeros and changes nothing", []string{"R3"}, nil, replayPadding},
	{"repeats", "twenty repeats give one digest, with other work in between", []string{"R0", "R11"}, nil, repeats},
	{"poisoned-memory", "memory full of NaN before the work changes nothing", []string{"R0"}, nil, poisonedMemory},
	{"rejected", "a token with NaN or Inf is rejected alone", []string{"R13"}, nil, rejected},
	{"float64-routes", "tokens go where float64 sends them", []string{"R2", "R3"}, nil, float64Routes},
	{"float64-accuracy", "results are as near to float64 as was measured", []string{"R1", "R6", "R8", "R9", "R11"}, nil, float64Accuracy},
	{"transformers", "results are as near to transformers in float64 as was measured", all, nil, transformers},
}

var (
	all          = []string{"R0 to R11"}
	forwardRules = []string{"R5", "R6", "R7", "R9"}
)

// every takes the counts as they are.
func every(tokens []int) []int { return tokens }

// probes are the probe sizes that leave room for as many strangers in the largest batch. Eight tokens alone are too weak:
// they rarely share an expert.
func probes(tokens []int) []int {
	return slices.DeleteFunc([]int{8, 64, 256}, func(n int) bool { return 2*n > slices.Max(tokens) })
}

// splits are the batches that are cut into micro-batches: enough tokens to fill segments, few enough to cut many times.
func splits(tokens []int) []int {
	return slices.DeleteFunc([]int{64, 256}, func(n int) bool { return n > slices.Max(tokens) })
}

// Cases are all cases for these token counts; none for the default.
func Cases(tokens ...int) []Case {
	if len(tokens) == 0 {
		tokens = DefaultTokens
	}
	var cases []Case
	for _, f := range families {
		c := Case{ID: f.id, Family: f.id, Title: f.title, Rules: f.rules, run: f.run}
		if f.counts == nil {
			cases = append(cases, c)
			continue
		}
		for _, n := range f.counts(tokens) {
			c.ID, c.Tokens = fmt.Sprintf("%s-%d", f.id, n), n
			cases = append(cases, c)
		}
	}
	return cases
}

// Match keeps the cases whose id fits one of the globs; all, where there are none. A glob that fits no case is an error.
func Match(cases []Case, globs ...string) ([]Case, error) {
	if len(globs) == 0 {
		return cases, nil
	}
	keep := make([]bool, len(cases))
	for _, g := range globs {
		found := false
		for i, c := range cases {
			ok, err := path.Match(g, c.ID)
			if err != nil {
				return nil, fmt.Errorf("case %q: %w", g, err)
			}
			keep[i] = keep[i] || ok
			found = found || ok
		}
		if !found {
			return nil, fmt.Errorf("case %q: found none of the %d, %s to %s, as samebit gate --list has them: need an id, or a glob that fits one; more tokens make more cases",
				g, len(cases), cases[0].ID, cases[len(cases)-1].ID)
		}
	}
	var kept []Case
	for i, c := range cases {
		if keep[i] {
			kept = append(kept, c)
		}
	}
	return kept, nil
}
