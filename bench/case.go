// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// Pass is what is timed.
type Pass string

const (
	// Forward is one Layer.Forward.
	Forward Pass = "forward"
	// ForwardBackward is a step of one micro-batch with BF16 gradients: Forward with Train, Backward and Flush, which writes every
	// gradient, those of experts without a token too.
	ForwardBackward Pass = "forward+backward"
	// ForwardBackwardFP32 is a micro-batch among several: Forward with Train, Backward and Flush, added to FP32 accumulators.
	ForwardBackwardFP32 Pass = "forward+backward-fp32"
)

// Passes are all of them.
var Passes = []Pass{Forward, ForwardBackward, ForwardBackwardFP32}

// Case is one thing to time.
type Case struct {
	Shape  string `json:"shape"`
	By     string `json:"by"` // backend=NAME or rival=NAME; on ranks backend=NAME/tp=N/ep=N
	Pass   Pass   `json:"pass"`
	Tokens int    `json:"tokens"` // of one run
}

// base is the benchmark that cases are parts of.
const base = "Layer"

// Name is the benchmark's, less the word Benchmark before it.
func (c Case) Name() string { return base + "/" + c.Part() }

// Part is what a sub-benchmark of BenchmarkLayer is called.
func (c Case) Part() string {
	return fmt.Sprintf("shape=%s/%s/pass=%s/tokens=%d", c.Shape, c.By, c.Pass, c.Tokens)
}

// caseOf reads a benchmark's name; false for one that is no case.
func caseOf(name benchfmt.Name) (c Case, ok bool) {
	first, parts := name.Parts()
	if string(first) != base {
		return c, false
	}
	for _, p := range parts {
		part := strings.TrimPrefix(string(p), "/")
		key, value, _ := strings.Cut(part, "=")
		switch key {
		case "shape":
			c.Shape = value
		case "backend", "rival":
			c.By = part
		case "tp", "ep":
			c.By += "/" + part
		case "pass":
			c.Pass = Pass(value)
		case "tokens":
			c.Tokens, _ = strconv.Atoi(value)
		}
	}
	return c, c.Shape != "" && c.By != "" && c.Pass != "" && c.Tokens > 0
}

// rivalOf is the case without who ran it.
func (c Case) rivalOf() Case {
	c.By = ""
	return c
}
