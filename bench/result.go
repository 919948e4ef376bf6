// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"

	"github.com/samebit/samebit/parallel"
)

// Result is what a case took. Times are in seconds.
type Result struct {
	Case
	Work
	Memory Memory  `json:"memory"`
	Runs   int     `json:"runs"`
	Median float64 `json:"median_seconds"`
	Min    float64 `json:"min_seconds"`
	Max    float64 `json:"max_seconds"`
	Share  float64 `json:"share_of_read_bandwidth"` // 0 where it was not measured

	// On ranks:
	PerRank float64            `json:"tokens_per_second_of_a_rank,omitempty"` // at the median
	Between float64            `json:"bytes_between_ranks,omitempty"`         // a token, of a run
	Sent    *parallel.PerToken `json:"sent,omitempty"`                        // what Between is of; nil for results read from lines
}

// TokensPerSecond is at the median, as are the other rates.
func (r *Result) TokensPerSecond() float64 { return float64(r.Tokens) / r.Median }

// Rate is the weights' bytes a second.
func (r *Result) Rate() float64 { return r.Weights / r.Median }

// MACRate is multiply-adds a second.
func (r *Result) MACRate() float64 { return r.MACs / r.Median }

// Setting is a configuration line, which stands ahead of results.
type Setting struct{ Key, Value string }

// Units of a line, beside ns/op.
const (
	nsMin      = "min-ns/op"
	nsMax      = "max-ns/op"
	tokensUnit = "tokens/s"
	rateUnit   = "GB/s"
	shareUnit  = "of-read-bandwidth"
	macUnit    = "GMAC/s"
	expertUnit = "experts"
	allocUnit  = "B/op"
	peakUnit   = "peak-B"
	spaceUnit  = "workspace-B"
	rankUnit   = "tokens/s/rank"
	sentUnit   = "sent-B/token"
)

// Writer writes results as lines.
type Writer struct {
	w     io.Writer
	known map[string]string // settings that were written; nil ahead of the first result
}

// NewWriter writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes a result, and ahead of it what is new in the settings. It is benchfmt.Writer's format, with numbers in full.
func (w *Writer) Write(r *Result, settings []Setting) error {
	var text strings.Builder
	if w.known == nil {
		w.known = map[string]string{}
		for _, unit := range []string{tokensUnit, rankUnit, rateUnit, shareUnit, macUnit} { // benchstat does not know
			fmt.Fprintf(&text, "Unit %s better=higher\n", unit)
		}
	}
	fresh := false
	for _, key := range slices.Sorted(maps.Keys(w.known)) {
		if !slices.ContainsFunc(settings, func(s Setting) bool { return s.Key == key }) {
			delete(w.known, key)
			fmt.Fprintf(&text, "%s:\n", key) // takes the setting back
			fresh = true
		}
	}
	for _, s := range settings {
		if w.known[s.Key] != s.Value {
			w.known[s.Key], fresh = s.Value, true
			fmt.Fprintf(&text, "%s: %s\n", s.Key, s.Value)
		}
	}
	if fresh {
		text.WriteByte('\n')
	}
	fmt.Fprintf(&text, "Benchmark%s %d", r.Name(), r.Runs)
	for _, v := range r.values() {
		fmt.Fprintf(&text, " %s %s", strconv.FormatFloat(v.Value, 'f', -1, 64), v.Unit)
	}
	text.WriteByte('\n')
	_, err := io.WriteString(w.w, text.String())
	return err
}

func (r *Result) values() []benchfmt.Value {
	all := []benchfmt.Value{
		{Value: math.Round(1e9 * r.Median), Unit: "ns/op"},
		{Value: math.Round(1e9 * r.Min), Unit: nsMin},
		{Value: math.Round(1e9 * r.Max), Unit: nsMax},
		{Value: digits(r.TokensPerSecond()), Unit: tokensUnit},
		{Value: digits(r.Rate() / 1e9), Unit: rateUnit},
		{Value: digits(r.MACRate() / 1e9), Unit: macUnit},
		{Value: digits(r.Experts), Unit: expertUnit},
		{Value: float64(r.Memory.Allocated), Unit: allocUnit},
		{Value: float64(r.Memory.Peak), Unit: peakUnit},
	}
	if r.Memory.Workspace > 0 {
		all = append(all, benchfmt.Value{Value: float64(r.Memory.Workspace), Unit: spaceUnit})
	}
	if r.Share > 0 {
		all = append(all, benchfmt.Value{Value: digits(r.Share), Unit: shareUnit})
	}
	if r.PerRank > 0 {
		all = append(all, benchfmt.Value{Value: digits(r.PerRank), Unit: rankUnit}, benchfmt.Value{Value: digits(r.Between), Unit: sentUnit})
	}
	return all
}

// digits keeps four.
func digits(v float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	return short
}

// Read reads the results among lines, and who ran them, in the order of the lines. What no line says is zero.
func Read(r io.Reader, name string) ([]*Result, error) {
	var results []*Result
	lines := benchfmt.NewReader(r, name)
	for lines.Scan() {
		switch line := lines.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, line
		case *benchfmt.Result:
			if c, ok := caseOf(line.Name); ok {
				results = append(results, fromLine(c, line))
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("%s: found no line Benchmark%s/shape=.../backend=.../pass=.../tokens=...: need one", name, base)
	}
	return results, nil
}

func fromLine(c Case, line *benchfmt.Result) *Result {
	r := &Result{Case: c, Runs: line.Iters}
	for _, v := range line.Values {
		unit, value := v.Unit, v.Value
		if v.OrigUnit != "" {
			unit, value = v.OrigUnit, v.OrigValue
		}
		switch unit {
		case "ns/op":
			r.Median = value / 1e9
		case nsMin:
			r.Min = value / 1e9
		case nsMax:
			r.Max = value / 1e9
		case rateUnit:
			r.Weights = 1e9 * value // of a second, until the line is read
		case macUnit:
			r.MACs = 1e9 * value
		case expertUnit:
			r.Experts = value
		case shareUnit:
			r.Share = value
		case allocUnit:
			r.Memory.Allocated = int64(value)
		case spaceUnit:
			r.Memory.Workspace = int64(value)
		case rankUnit:
			r.PerRank = value
		case sentUnit:
			r.Between = value
		case peakUnit:
			r.Memory.Peak = int64(value)
		}
	}
	r.Weights, r.MACs = r.Weights*r.Median, r.MACs*r.Median
	return r
}
