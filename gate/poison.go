// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bytes"
	"slices"

	"github.com/samebit/samebit/backend"
)

// poisonedMemory runs the layer on memory in which every byte is 0xFF before the work, a NaN or -1 whatever the type: an
// element that no stage wrote, or that one read too early, shows.
func poisonedMemory(c *check) {
	w := c.input(c.few(65))
	w.gradients = true
	clean := c.run(w)
	o := c.Options
	o.Backend = poisonedBackend(c.backend())
	members, err := c.open(o, c.ranks())
	c.must(err)
	defer closeAll(members)
	passes, err := runAll(members, w)
	c.must(err)
	c.same("on poisoned memory", passes[0].everything(), clean.everything())
}

// poisonedBackend is the name of a backend like another, whose fresh memory is poisoned.
func poisonedBackend(name string) string {
	poisoned := "poisoned-" + name
	if !slices.Contains(backend.Names(), poisoned) {
		backend.Register(poisoned, func(o backend.Options) (backend.Backend, error) {
			b, err := backend.Open(name, o)
			return poisoner{b}, err
		})
	}
	return poisoned
}

// poisoner is a backend whose fresh memory is poisoned.
type poisoner struct{ backend.Backend }

func (p poisoner) Alloc(d backend.Dtype, n int) (backend.Buffer, error) {
	b, err := p.Backend.Alloc(d, n)
	if err == nil {
		err = p.Write(b, bytes.Repeat([]byte{0xFF}, n*d.Size()))
	}
	return b, err
}
