// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package parallel

// Volume is how many bytes a rank has sent to others, by what they were: x, h, rows and y of the forward, dy, d(gate|up), dx rows
// and dx of the backward, and so on.
type Volume map[string]int64

// Total is the sum.
func (v Volume) Total() (n int64) {
	for _, bytes := range v {
		n += bytes
	}
	return n
}

// Volume is what this rank has sent since it joined.
func (r *Rank) Volume() Volume { return r.volume }

// sending counts what is sent until the function that it gives is called.
func (r *Rank) sending(what string) func() {
	before := r.Group.Sent()
	return func() { r.volume[what] += r.Group.Sent() - before }
}
