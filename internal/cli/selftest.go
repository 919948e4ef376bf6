// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/checkpoint/safetensors"
	"github.com/samebit/samebit/contract/testdata"
	"github.com/samebit/samebit/internal/bits"
	"github.com/samebit/samebit/internal/ui"
)

// selftestCommand checks the law of R1 against hardware results.
type selftestCommand struct {
	Backend string `placeholder:"NAME" help:"Check this backend's kernels, too; see samebit info." json:"backend,omitempty"`
	Workers int    `placeholder:"N" help:"Goroutines of a CPU backend; 0 for one a processor." json:"workers"`
	Vectors string `placeholder:"FILE" help:"safetensors file of hardware results, in place of those inside this program." json:"vectors,omitempty"`

	Result selftestResult `kong:"-" json:"result"`
}

type selftestResult struct {
	Vectors  string            `json:"vectors"`
	Metadata map[string]string `json:"metadata,omitempty"` // of the vectors: which hardware, which instruction
	Device   string            `json:"device,omitempty"`
	Kinds    []*kindResult     `json:"kinds"`
	Outputs  int               `json:"outputs"`
	Same     bool              `json:"same"`
	First    *bits.Difference  `json:"first_difference,omitempty"`
}

// kindResult is how many of a kind's outputs are the hardware's.
type kindResult struct {
	Kind     string `json:"kind"`
	Outputs  int    `json:"outputs"`
	Contract int    `json:"contract"` // the same by the contract
	Reached  int    `json:"reached"`  // outputs that the backend's kernels were asked for
	Backend  int    `json:"backend"`  // the same by the backend's kernels
}

func (*selftestCommand) Help() string {
	return `The contract's dot product (rule R1) is what a Hopper tensor core computes. This program carries 33,792 results that an H200 gave, over the whole range of exponents, subnormal, huge and cancelling values among them. The contract's scalar code must give every bit of them; with --backend so must that backend's own kernels, which are run as the gate and the up projection of an expert.

Exit status 1 where any output differs.

Examples:

    samebit selftest
    samebit selftest --backend cpu`
}

// Run implements command.
func (c *selftestCommand) Run(e *env) error {
	var b backend.Backend
	if c.Backend != "" {
		var err error
		if b, err = backend.Open(c.Backend, backend.Options{Workers: c.Workers}); err != nil {
			return err
		}
		defer b.Close()
		c.Result.Device = b.Device()
	}
	file, err := c.open()
	if err != nil {
		return err
	}
	defer file.Close()
	c.Result.Vectors, c.Result.Metadata = file.Path(), file.Metadata()
	return safetensors.Guard(func() error {
		products, err := products(file)
		if err != nil {
			return err
		}
		return c.check(e, b, products)
	})
}

func (c *selftestCommand) open() (*safetensors.File, error) {
	if c.Vectors != "" {
		return safetensors.Open(c.Vectors)
	}
	return safetensors.Parse(testdata.H200Name, testdata.H200)
}

// check runs every product.
func (c *selftestCommand) check(e *env, b backend.Backend, products []*product) error {
	progress := e.progress("checking")
	defer progress.Close()
	wrong := 0
	for i, p := range products {
		kind := c.kind(p.kind)
		kind.Outputs += len(p.d)
		same := c.compare(p, "contract", p.contract())
		kind.Contract += same
		wrong += len(p.d) - same
		if b != nil {
			gate, up, ok, err := p.throughLayer(b)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if ok {
				same := min(c.compare(p, "gate", gate), c.compare(p, "up", up))
				kind.Reached += len(p.d)
				kind.Backend += same
				wrong += len(p.d) - same
			}
		}
		c.Result.Outputs += len(p.d)
		progress.Set(int64(i+1), int64(len(products)))
	}
	if wrong > 0 {
		return failf("%d outputs are not the hardware's, the first of them: %v", wrong, c.Result.First)
	}
	c.Result.Same = true
	return nil
}

// kind is the results of a kind; products come sorted.
func (c *selftestCommand) kind(name string) *kindResult {
	if n := len(c.Result.Kinds); n > 0 && c.Result.Kinds[n-1].Kind == name {
		return c.Result.Kinds[n-1]
	}
	k := &kindResult{Kind: name}
	c.Result.Kinds = append(c.Result.Kinds, k)
	return k
}

// compare counts the outputs that are the hardware's.
func (c *selftestCommand) compare(p *product, by string, got []float32) int {
	d := bits.Slices(p.name+" by "+by, []int{p.m, p.n}, got, p.d, bits.AllowNonFinite)
	if !d.Same() && c.Result.First == nil {
		c.Result.First = &d
	}
	return d.Elements - d.Count
}

// Show implements command.
func (c *selftestCommand) Show(p *ui.Printer) {
	r := &c.Result
	p.Line("%s: %d outputs of %s", r.Vectors, r.Outputs, r.Metadata["device"])
	if c.Backend != "" {
		p.Line("backend %s: %s", c.Backend, r.Device)
	}
	p.Line("")
	of := func(same, all int) string {
		s := fmt.Sprintf("%d of %d", same, all)
		if same != all {
			return p.Bad(s)
		}
		return s
	}
	header := ui.Row{"kind", "contract"}
	if c.Backend != "" {
		header = append(header, c.Backend)
	}
	var rows []ui.Row
	total := kindResult{Kind: "all"}
	add := func(k *kindResult) {
		row := ui.Row{k.Kind, of(k.Contract, k.Outputs)}
		if c.Backend != "" {
			row = append(row, of(k.Backend, k.Reached))
		}
		rows = append(rows, row)
	}
	for _, k := range r.Kinds {
		add(k)
		total.Outputs += k.Outputs
		total.Contract += k.Contract
		total.Reached += k.Reached
		total.Backend += k.Backend
	}
	add(&total)
	p.Table(header, rows...)
}
