// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/samebit/samebit/internal/bits"
	"github.com/samebit/samebit/internal/testgen"
)

// check is one case at work on one subject.
type check struct {
	*Subject
	tokens int // the case's parameter
	most   int // the largest token count asked for
	result *Result
}

// stop ends a case early; perform recovers it.
type stop struct {
	verdict Verdict
	reason  string
}

// perform runs a case to its result. An error, and even a panic, fails the case and no more than that.
func perform(c Case, s *Subject) (r Result) {
	start := time.Now()
	r = Result{Case: c, Subject: s.Name, Verdict: Pass}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case stop:
			r.Verdict, r.Reason = e.verdict, e.reason
		default:
			r.Verdict, r.Reason = Fail, fmt.Sprintf("panic: %v\n%s", e, debug.Stack())
		}
		r.sum()
		r.Seconds = time.Since(start).Seconds()
	}()
	c.run(&check{Subject: s, tokens: c.Tokens, most: slices.Max(s.tokens()), result: &r})
	return r
}

// must ends the case where there is an error.
func (c *check) must(err error) {
	if err != nil {
		panic(stop{Fail, err.Error()})
	}
}

// skip ends the case without a verdict.
func (c *check) skip(format string, args ...any) { panic(stop{Skip, fmt.Sprintf(format, args...)}) }

// run runs a work on all ranks and gives the first one's pass.
func (c *check) run(w work) pass { return c.runAll(w)[0] }

func (c *check) runAll(w work) []pass {
	passes, err := runAll(c.Ranks, w)
	c.must(err)
	return passes
}

// input makes n tokens with their upstream gradients. Fewer tokens are the first of more.
func (c *check) input(n int) work { return c.inputOf(n, seed) }

func (c *check) inputOf(n int, seed uint64) work {
	return work{x: testgen.Tokens(n, c.Shape.Hidden, seed), dy: testgen.Upstream(n, c.Shape.Hidden, seed)}
}

// few is n, or as many as the subject's largest token count.
func (c *check) few(n int) int { return min(n, c.most) }

// same compares tensors, bit for bit, with what they must be. What is compared is named: "chunks of 7".
func (c *check) same(what string, have, need []tensor, options ...bits.Option) {
	for i, n := range need {
		if i >= len(have) || have[i].name != n.name {
			c.claim(what+": "+n.name, "none", n.name)
			continue
		}
		r := Comparison{What: what, Difference: have[i].compare(n, options...), Digest: n.digest()}
		if r.First != nil {
			r.Where = n.where(r.First)
		} else if r.FirstBad != nil {
			r.Where = n.where(r.FirstBad)
		}
		c.result.add(r)
	}
}

// claim compares what is not a tensor: a count, a digest, whether an error came.
func (c *check) claim(what, have, need string) {
	sum := sha256.Sum256([]byte(need))
	r := Comparison{What: what, Difference: bits.Difference{Elements: 1}, Digest: hex.EncodeToString(sum[:])}
	if have != need {
		r.Mismatch = fmt.Sprintf("have %s, need %s", have, need)
	}
	c.result.add(r)
}

// measure records a figure, which must be at most its bound.
func (c *check) measure(what string, value, bound float64) {
	c.result.measure(Measurement{What: what, Value: value, Bound: bound})
}

// digest lets results that were measured, not compared, count in the case's digest.
func (c *check) digest(tensors ...tensor) {
	c.result.digests = map[string]string{}
	for _, t := range tensors {
		c.result.digests["measured: "+t.name] = t.digest()
	}
}

// note tells the reader of the evidence something that is no verdict.
func (c *check) note(format string, args ...any) {
	c.result.Notes = append(c.result.Notes, fmt.Sprintf(format, args...))
}
