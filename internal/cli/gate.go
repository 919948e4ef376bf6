// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/gate"
	"github.com/samebit/samebit/internal/ui"
	"github.com/samebit/samebit/parallel"
)

// gateCommand runs the acceptance cases.
type gateCommand struct {
	Checkpoint string   `placeholder:"DIR" help:"Hugging Face folder, in place of the checkpoint inside this program." json:"checkpoint,omitempty"`
	Layer      int      `placeholder:"N" help:"Number of the layer in --checkpoint." json:"layer"`
	Shape      []string `placeholder:"NAME" help:"Made-up weights of this shape: qwen3-next, qwen3-30b-a3b, mid or tiny." json:"shape,omitempty"`
	Backend    string   `default:"cpu" help:"What does the work; see samebit info. Changes no bit." json:"backend"`
	Workers    int      `placeholder:"N" help:"Goroutines of a CPU backend; 0 for one a processor. Changes no bit." json:"workers"`
	Tokens     []int    `placeholder:"N,..." help:"Token counts of the cases that take one; 8,64,256,1024 where not given." json:"tokens,omitempty"`
	Case       []string `placeholder:"ID" help:"Only the cases with this id, or ids that fit this glob; may be given again." json:"case,omitempty"`
	Report     string   `placeholder:"DIR" help:"Write evidence.json and report.html there." json:"report,omitempty"`
	List       bool     `help:"List the cases and run none." json:"list,omitempty"`
	rankFlags

	Cases  []gate.Case  `kong:"-" json:"cases,omitempty"` // with List
	Result *gate.Report `kong:"-" json:"result,omitempty"`
}

func (*gateCommand) Help() string {
	return `Puts every promise of the contract to work on a layer and says where it holds: chunks, order, company, padding, micro-batches, replay, repeats, ranks, the contract's own scalar layer, float64. Bits are compared as bits; a failed case names the first element that differs. A case's digest is the SHA-256 of all that was compared, so that two machines that print the same have the same bits.

Without --checkpoint and --shape it runs on the checkpoint inside this program and on a made-up layer of shape mid, in well under a minute.

With --tp and --ep the layer is on the ranks of a grid, which are goroutines of this process; where mpirun, srun or torchrun has started several processes these are the ranks. The digests are those of one process, but where ranks are counted.

Exit status 1 where any case failed.

Examples:

    samebit gate
    samebit gate --report evidence
    samebit gate --checkpoint Qwen3-Next-80B-A3B-Instruct --layer 3 --backend cpu --tokens 8,64
    samebit gate --shape tiny --case 'micro-batches-*' --case padding
    samebit gate --tp 2 --ep 2
    mpirun -np 4 samebit gate --tp 2
    torchrun --standalone --no-python --nproc-per-node 8 samebit gate --backend cuda`
}

// Run implements command.
func (c *gateCommand) Run(e *env) error {
	for _, n := range c.Tokens {
		if n < 8 || n > mostTokens {
			return fmt.Errorf("--tokens: found %d: need 8 to %d", n, mostTokens)
		}
	}
	if c.Case != nil && len(c.Case) == 0 {
		return errors.New("--case: found none: need an id, or a glob that fits one")
	}
	if c.Shape != nil && len(c.Shape) == 0 {
		return errors.New("--shape: found none: need a name")
	}
	if err := errors.Join(checkLayer(c.Layer, c.Checkpoint), once("--shape", c.Shape), once("--tokens", c.Tokens)); err != nil {
		return err
	}
	cases, err := gate.Match(gate.Cases(c.Tokens...), c.Case...) // before the work of making a layer
	if err != nil || c.List {
		c.Cases = cases
		return err
	}
	ranks, err := c.join(e)
	if err != nil {
		return err
	}
	if err := e.alike(first(ranks), "flags", fmt.Sprintf("--shape %v --layer %d --tokens %v --case %v", c.Shape, c.Layer, c.Tokens, c.Case)); err != nil {
		return err
	}
	if c.Report != "" && e.rank == 0 { // before the work, so that no result is lost
		if err := c.tryReport(); err != nil {
			return fmt.Errorf("--report: %w: need a folder, or a name for one", err)
		}
	}
	subjects, err := c.subjects(ranks, e.device)
	if err != nil {
		return err
	}
	for _, s := range subjects {
		defer s.Close()
		if len(c.Tokens) > 0 {
			s.Tokens = c.Tokens
		}
	}
	progress := e.progress("gate")
	defer progress.Close()
	c.Result, err = gate.Run(subjects, c.Case, func(number, of int, _ string, _ gate.Case, r *gate.Result) {
		if r != nil {
			progress.Set(int64(number+1), int64(of))
		}
	})
	if err != nil {
		return err
	}
	if c.Report != "" && e.rank == 0 {
		if err := c.write(); err != nil {
			return fmt.Errorf("--report: %w", err)
		}
	}
	if !c.Result.Passed() {
		return failf("%d cases passed, %d failed, %d skipped", c.Result.Pass, c.Result.Fail, c.Result.Skip)
	}
	return nil
}

// once refuses what a flag says twice.
func once[T comparable](flag string, values []T) error {
	for i, v := range values {
		if slices.Contains(values[:i], v) {
			return fmt.Errorf("%s: found %v twice: need it once", flag, v)
		}
	}
	return nil
}

// subjects opens what is to be tried.
func (c *gateCommand) subjects(ranks []*parallel.Rank, device int) (subjects []*gate.Subject, err error) {
	o := samebit.Options{Backend: c.Backend, Workers: c.Workers, Device: device}
	defer func() {
		if err != nil {
			for _, s := range subjects {
				s.Close()
			}
		}
	}()
	if c.Checkpoint != "" {
		s, err := gate.FromFolder(c.Checkpoint, c.Layer, o, ranks...)
		if err != nil {
			return subjects, err
		}
		subjects = append(subjects, s)
	}
	for _, shape := range c.Shape {
		s, err := gate.Synthetic(shape, o, ranks...)
		if err != nil {
			return subjects, fmt.Errorf("--shape: %w", err)
		}
		subjects = append(subjects, s)
	}
	if len(subjects) == 0 {
		return gate.Default(o, ranks...)
	}
	return subjects, nil
}

// The files of a report.
const (
	evidenceFile = "evidence.json"
	pageFile     = "report.html"
)

// tryReport says whether a report can be written. Folders that it made to find out go again: a run that ends early leaves none.
func (c *gateCommand) tryReport() error {
	var made []string // from the innermost out
	for dir := filepath.Clean(c.Report); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = append(made, dir)
	}
	defer func() {
		for _, dir := range made {
			os.Remove(dir)
		}
	}()
	if err := os.MkdirAll(c.Report, 0o777); err != nil {
		return err
	}
	return errors.Join(writable(filepath.Join(c.Report, evidenceFile)), writable(filepath.Join(c.Report, pageFile)))
}

// write writes the evidence.
func (c *gateCommand) write() error {
	if err := os.MkdirAll(c.Report, 0o777); err != nil {
		return err
	}
	return errors.Join(replaceFile(filepath.Join(c.Report, evidenceFile), c.Result.WriteJSON),
		replaceFile(filepath.Join(c.Report, pageFile), c.Result.WriteHTML))
}

// Show implements command.
func (c *gateCommand) Show(p *ui.Printer) {
	if c.List {
		var rows []ui.Row
		for _, k := range c.Cases {
			rows = append(rows, ui.Row{k.ID, k.Title})
		}
		p.Table(ui.Row{"case", "what must hold"}, rows...)
		return
	}
	verdicts := map[gate.Verdict]string{gate.Pass: p.Good("pass"), gate.Fail: p.Bad("FAIL"), gate.Skip: "skip"}
	for _, s := range c.Result.Subjects {
		var rows []ui.Row
		for _, r := range c.Result.Of(s.Name) {
			rows = append(rows, ui.Row{r.ID, verdicts[r.Verdict], r.Digest[:min(8, len(r.Digest))], fmt.Sprintf("%.2f", r.Seconds), r.Why()})
		}
		p.Line("%s on %s: %s", s.Name, s.Backend, s.Device)
		p.Table(ui.Row{"case", "", "digest", "s", "evidence"}, rows...)
		if s.Volume != nil {
			p.Line("%v", s.Volume)
		}
		p.Line("")
	}
	p.Line("%d passed, %d failed, %d skipped in %.1f s", c.Result.Pass, c.Result.Fail, c.Result.Skip, c.Result.Seconds)
	if c.Report != "" {
		p.Line("%s", filepath.Join(c.Report, pageFile))
	}
}
