// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package gate holds the acceptance cases: what the contract promises, each promise put to work on a layer, with a verdict
// and the evidence for it.
//
// A [Case] compares bits and nothing else wherever bits are promised; it says what it compared, how many elements, which is
// the first that differs, and a digest, so that two machines can be compared by eye. Cases about accuracy compare with a
// float64 layer, and give the measured figure beside its bound. A [Subject] is the layer under test. [Run] takes cases and
// subjects to a [Report], which writes itself as JSON and as a page of HTML.
package gate
