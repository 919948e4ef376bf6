// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"time"

	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/bits"
	"github.com/samebit/samebit/parallel"
)

// Verdict is what a case comes to.
type Verdict string

// The verdicts.
const (
	Pass Verdict = "pass"
	Fail Verdict = "fail"
	Skip Verdict = "skip" // with a reason: there is nothing here that the case could try
)

// Result is a case's verdict on a subject, with the evidence.
type Result struct {
	Case
	Subject  string        `json:"subject"`
	Verdict  Verdict       `json:"verdict"`
	Reason   string        `json:"reason,omitempty"` // of a skip, or the error
	Elements int           `json:"elements"`         // compared, bit for bit
	Differ   int           `json:"differ"`           // of those
	Digest   string        `json:"digest,omitempty"` // SHA-256 of all that was compared with: equal where the bits are
	Seconds  float64       `json:"seconds"`
	Compared []Comparison  `json:"compared,omitempty"`
	Measured []Measurement `json:"measured,omitempty"`
	Notes    []string      `json:"notes,omitempty"`

	digests map[string]string // of results that were measured
}

// Comparison is what was found (A) against what it must be (B), bit for bit.
type Comparison struct {
	What string `json:"what"`
	bits.Difference
	Where  string `json:"where,omitempty"` // the first element that is not as it must be: token 3, column 17
	Digest string `json:"digest"`          // SHA-256 of what it must be, as package bits defines it
}

// String says in a line what was found.
func (c Comparison) String() string {
	what := c.What
	if c.Name != "" {
		what += ": " + c.Name
	}
	switch {
	case c.Mismatch != "":
		return fmt.Sprintf("%s: %s", what, c.Mismatch)
	case c.First != nil:
		return fmt.Sprintf("%s: %d of %d differ, first at %s: have %s, need %s", what, c.Count, c.Elements, c.Where, c.First.A, c.First.B)
	case c.FirstBad != nil:
		return fmt.Sprintf("%s: %d of %d are not finite, first at %s: %s", what, c.NonFinite, c.Elements, c.Where, c.FirstBad.A)
	}
	return fmt.Sprintf("%s: %d elements equal", what, c.Elements)
}

// Measurement is a figure and the bound that it must not exceed: a count, or the L2 norm of errors relative to that of the truth.
type Measurement struct {
	What     string  `json:"what"`
	Value    float64 `json:"value"`
	Bound    float64 `json:"bound"`
	Relative bool    `json:"relative_l2,omitempty"`
	MaxAbs   float64 `json:"max_abs,omitempty"` // the largest error
}

// Within reports whether the figure keeps its bound.
func (m Measurement) Within() bool { return m.Value <= m.Bound }

func (m Measurement) String() string {
	return fmt.Sprintf("%s: %.3g, at most %.3g", m.What, m.Value, m.Bound)
}

func (r *Result) add(c Comparison) {
	r.Compared = append(r.Compared, c)
	r.Elements += c.Elements
	r.Differ += c.Count
	if !c.Same() {
		r.Verdict = Fail
	}
}

func (r *Result) measure(m Measurement) {
	for _, v := range []*float64{&m.Value, &m.MaxAbs} {
		if math.IsNaN(*v) || math.IsInf(*v, 0) {
			*v = math.MaxFloat64 // which JSON can say, and no bound allows
		}
	}
	r.Measured = append(r.Measured, m)
	if !m.Within() {
		r.Verdict = Fail
	}
}

// sum makes the case's digest of those of its comparisons.
func (r *Result) sum() {
	digests := maps.Clone(r.digests)
	if digests == nil {
		digests = map[string]string{}
	}
	for _, c := range r.Compared {
		digests[c.What+": "+c.Name] = c.Digest
	}
	if len(digests) > 0 {
		r.Digest = bits.DigestOf(digests)
	}
}

// Why says in a line what the verdict rests on: the first difference, the figure nearest to its bound, or what was compared.
func (r *Result) Why() string {
	for _, c := range r.Compared {
		if !c.Same() {
			return c.String()
		}
	}
	m := r.tightest()
	switch {
	case r.Reason != "":
		return r.Reason
	case m != nil:
		return m.String()
	default:
		return fmt.Sprintf("%d elements equal", r.Elements)
	}
}

// tightest is the measurement that is nearest to its bound, or farthest beyond it; nil where there is none.
func (r *Result) tightest() *Measurement {
	var tightest *Measurement
	for i, m := range r.Measured {
		if tightest == nil || m.Value*tightest.Bound > tightest.Value*m.Bound {
			tightest = &r.Measured[i]
		}
	}
	return tightest
}

// Report is what a run of the gate found.
type Report struct {
	Contract int             `json:"contract"` // contract.Version
	Started  time.Time       `json:"started"`
	Seconds  float64         `json:"seconds"`
	Machine  string          `json:"machine"`
	Pass     int             `json:"pass"`
	Fail     int             `json:"fail"`
	Skip     int             `json:"skip"`
	Subjects []SubjectRecord `json:"subjects"`
	Results  []Result        `json:"results"`
}

// SubjectRecord is what a report says about a subject.
type SubjectRecord struct {
	Name    string             `json:"name"`
	Backend string             `json:"backend"`
	Device  string             `json:"device"`
	Ranks   int                `json:"ranks"`
	Shape   contract.Shape     `json:"shape"`
	Load    []int              `json:"load"` // tokens of each expert, of LoadTokens tokens
	Tokens  int                `json:"load_tokens"`
	Grid    *parallel.Grid     `json:"grid,omitempty"`
	Volume  *parallel.PerToken `json:"bytes_between_ranks,omitempty"` // a token
}

// Passed reports whether no case failed, and at least one passed.
func (r *Report) Passed() bool { return r.Fail == 0 && r.Pass > 0 }

// Of are the results of one subject.
func (r *Report) Of(subject string) []Result {
	var results []Result
	for _, x := range r.Results {
		if x.Subject == subject {
			results = append(results, x)
		}
	}
	return results
}

// WriteJSON writes the evidence.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
