// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/testgen"
)

// Observer is told what a run is at: before each case, with its number, from 0, and a nil result; and after it.
type Observer func(number, of int, subject string, c Case, r *Result)

// leastTokens is the smallest token count of a case: room for tokens of every kind.
const leastTokens = 8

// Run takes every subject through the cases that its token counts make and whose ids fit one of the globs, all without any.
func Run(subjects []*Subject, globs []string, watch Observer) (*Report, error) {
	r := &Report{Contract: contract.Version, Started: time.Now().UTC().Truncate(time.Second),
		Machine: fmt.Sprintf("%s/%s, %d processors, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())}
	start := time.Now()
	cases := make([][]Case, len(subjects))
	total := 0
	for i, s := range subjects {
		if n := slices.Min(s.tokens()); n < leastTokens {
			return nil, fmt.Errorf("%s: found %d tokens: need at least %d", s.Name, n, leastTokens)
		}
		var err error
		if cases[i], err = Match(Cases(s.tokens()...), globs...); err != nil {
			return nil, err
		}
		total += len(cases[i])
	}
	for i, s := range subjects {
		for _, c := range cases[i] {
			number := len(r.Results)
			if watch != nil {
				watch(number, total, s.Name, c, nil)
			}
			r.add(perform(c, s))
			if watch != nil {
				watch(number, total, s.Name, c, &r.Results[number])
			}
		}
		r.Subjects = append(r.Subjects, s.record())
		if err := r.agree(s); err != nil {
			return nil, err
		}
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

func (r *Report) add(result Result) {
	r.Results = append(r.Results, result)
	switch result.Verdict {
	case Pass:
		r.Pass++
	case Fail:
		r.Fail++
	default:
		r.Skip++
	}
}

// record describes the subject, and how the largest batch loads its experts.
func (s *Subject) record() SubjectRecord {
	r := SubjectRecord{Name: s.Name, Backend: s.backend(), Device: s.Ranks[0].Device(), Ranks: s.size(), Shape: s.Shape,
		Tokens: slices.Max(s.tokens()), Grid: s.Grid}
	r.Volume = s.volume(min(r.Tokens, 256))
	passes, err := runAll(s.Ranks, work{x: testgen.Tokens(r.Tokens, s.Shape.Hidden, seed)})
	if err != nil {
		return r // the cases have said so
	}
	r.Load = make([]int, s.Shape.Experts)
	for _, e := range passes[0].ids {
		if e >= 0 {
			r.Load[e]++
		}
	}
	return r
}
