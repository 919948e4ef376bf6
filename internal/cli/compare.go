// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/internal/bits"
	"github.com/samebit/samebit/internal/ui"
)

// compareCommand compares two files.
type compareCommand struct {
	A        string   `arg:"" help:"A safetensors file." json:"a"`
	B        string   `arg:"" help:"Another." json:"b"`
	Tensor   []string `placeholder:"NAME" sep:"none" help:"Compare this tensor only; * stands for any text. May be given again." json:"tensor,omitempty"`
	AllowNaN bool     `name:"allow-nan" help:"Let NaN and infinity pass where both files have the same bits." json:"allow_nan"`

	Result compareResult `kong:"-" json:"result"`
}

type compareResult struct {
	Same        bool              `json:"same"`
	Tensors     int               `json:"tensors"` // compared
	Elements    int               `json:"elements"`
	Differences []bits.Difference `json:"differences"` // of the tensors that are not the same
}

func (*compareCommand) Help() string {
	return `The same means: the same tensors, and of each the dtype, the shape and every bit. -0 differs from +0. There is no tolerance. NaN and infinity are refused, even where both files have them, unless --allow-nan. The order of the tensors in the files and their metadata do not matter.

Exit status 1 where anything differs. Of each tensor that does: how many elements, the first one's place and both its values in hex and decimal, and the largest distance in units of the last place.

Examples:

    samebit compare a.safetensors b.safetensors
    samebit compare a.safetensors b.safetensors --tensor y --tensor 'grad.*'`
}

// Run implements command.
func (c *compareCommand) Run(e *env) error {
	a, err := safetensors.Open(c.A)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := safetensors.Open(c.B)
	if err != nil {
		return err
	}
	defer b.Close()
	names, err := c.names(a, b)
	if err != nil {
		return err
	}
	if err := safetensors.Guard(func() error { c.compare(e, a, b, names); return nil }); err != nil {
		return err
	}
	if err := errors.Join(a.Check(), b.Check()); err != nil {
		return err
	}
	if n := len(c.Result.Differences); n > 0 {
		return failf("%d of %d tensors differ", n, len(names))
	}
	c.Result.Same = true
	return nil
}

// names are the tensors of either file that are asked for, sorted.
func (c *compareCommand) names(a, b *safetensors.File) ([]string, error) {
	all := map[string]bool{}
	for _, name := range append(a.Names(), b.Names()...) {
		all[name] = true
	}
	names := slices.Sorted(maps.Keys(all))
	if len(c.Tensor) == 0 {
		return names, nil
	}
	wanted := map[string]bool{}
	for _, pattern := range c.Tensor {
		found := false
		for _, name := range names {
			ok, err := path.Match(pattern, name)
			if err != nil {
				return nil, fmt.Errorf("--tensor %q: %w", pattern, err)
			}
			if ok {
				found, wanted[name] = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("--tensor %q: found none in %s or %s: need one of their %d tensors", pattern, c.A, c.B, len(names))
		}
	}
	return slices.Sorted(maps.Keys(wanted)), nil
}

func (c *compareCommand) compare(e *env, a, b *safetensors.File, names []string) {
	var options []bits.Option
	if c.AllowNaN {
		options = append(options, bits.AllowNonFinite)
	}
	progress := e.progress("comparing")
	defer progress.Close()
	c.Result.Differences = []bits.Difference{}
	for i, name := range names {
		d := bits.Difference{Name: name}
		x, inA := a.Tensor(name)
		y, inB := b.Tensor(name)
		switch {
		case !inB:
			d.Mismatch = "only in " + c.A
		case !inA:
			d.Mismatch = "only in " + c.B
		default:
			d = bits.Compare(x, y, options...)
		}
		c.Result.Tensors++
		c.Result.Elements += d.Elements
		if !d.Same() {
			c.Result.Differences = append(c.Result.Differences, d)
		}
		progress.Set(int64(i+1), int64(len(names)))
	}
}

// Show implements command.
func (c *compareCommand) Show(p *ui.Printer) {
	if c.Result.Same {
		p.Line("%s: %d tensors, %d elements", p.Good("the same"), c.Result.Tensors, c.Result.Elements)
		return
	}
	const most = 50 // a layer has thousands of tensors
	shown := c.Result.Differences[:min(most, len(c.Result.Differences))]
	var rows []ui.Row
	for _, d := range shown {
		if d.First != nil {
			rows = append(rows, ui.Row{d.Name, d.Count, d.Elements, bits.List(d.First.At), d.First.A, d.First.B, d.MaxULP})
		}
	}
	if rows != nil {
		p.Table(ui.Row{"tensor", "differ", "of", "first at", "a", "b", "max ulp"}, rows...)
	}
	for _, d := range shown {
		if d.First == nil || d.NonFinite > 0 {
			p.Line("%v", d)
		}
	}
	if more := len(c.Result.Differences) - len(shown); more > 0 {
		p.Line("and %d more: --json has them all", more)
	}
}
