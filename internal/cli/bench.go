// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/samebit/samebit"
	"github.com/samebit/samebit/bench"
	"github.com/samebit/samebit/internal/testgen"
	"github.com/samebit/samebit/internal/ui"
	"github.com/samebit/samebit/parallel"
)

// benchCommand times the layer.
type benchCommand struct {
	Backend    []string          `default:"cpu" placeholder:"NAME,..." help:"What does the work (cpu); see samebit info." json:"backend"`
	Shape      string            `default:"qwen3-next" placeholder:"NAME" help:"Shape of the layer: qwen3-next (which takes 3.2 GB), qwen3-30b-a3b, mid or tiny." json:"shape"`
	Checkpoint string            `placeholder:"DIR" help:"Hugging Face folder, in place of made-up weights of --shape." json:"checkpoint,omitempty"`
	Layer      int               `placeholder:"N" help:"Number of the layer in --checkpoint." json:"layer"`
	Tokens     []int             `default:"1,8,64,256,1024" placeholder:"N,..." help:"Token counts of a run (1,8,64,256,1024)." json:"tokens"`
	Pass       []bench.Pass      `default:"forward" enum:"forward,forward+backward,forward+backward-fp32" placeholder:"PASS,..." help:"What is timed: forward, forward+backward (BF16 gradients), forward+backward-fp32." json:"pass"`
	Workers    int               `placeholder:"N" help:"Goroutines of a CPU backend; 0 for one a processor." json:"workers"`
	Count      int               `placeholder:"N" help:"Timed runs of a case, in place of --time." json:"count,omitempty"`
	Time       time.Duration     `default:"1s" help:"Run each case at least so long, and 5 times." json:"time_ns"`
	Bandwidth  bool              `default:"true" negatable:"" help:"Measure the machine's read bandwidth." json:"bandwidth"`
	Out        string            `placeholder:"FILE" help:"Write benchmark lines there." json:"out,omitempty"`
	Note       map[string]string `placeholder:"KEY=VALUE" mapsep:"none" help:"A configuration line for --out, such as commit=1a2b3c; may be given again." json:"note,omitempty"`
	Against    string            `placeholder:"FILE" help:"Set the times of these benchmark lines beside the others, and how many times as long they are." json:"against,omitempty"`
	From       string            `placeholder:"FILE" help:"Show these benchmark lines, and run nothing." json:"from,omitempty"`
	rankFlags

	Result benchResult `kong:"-" json:"result"`
}

type benchResult struct {
	Devices   map[string]string `json:"devices,omitempty"` // of the backends
	Bandwidth *bench.Bandwidth  `json:"read_bandwidth,omitempty"`
	Cases     []benchCase       `json:"cases"`

	against *bench.Against
}

type benchCase struct {
	*bench.Result
	Against map[string]float64 `json:"against_seconds,omitempty"`
}

func (*benchCommand) Help() string {
	return `Each case is one pass over so many tokens, all of whose runs take other tokens than the run before. Times are wall-clock of the calls that a user makes; the median counts, with the fastest and the slowest run beside it.

    forward                 one Forward
    forward+backward        a step of one micro-batch: Forward, Backward, Flush, all gradients cast to BF16
    forward+backward-fp32   a micro-batch among several: Forward, Backward, Flush, added to FP32 accumulators

On a GPU a pass is timed there, in a CUDA graph of several runs over different tokens that lie in its memory already; peak and workspace are of its memory, too.

GB/s is the weights that the tokens need - the router, the shared expert, the experts that they go to - read once a forward and once a backward; gradients and activations are not counted. Beside it stands its part of the bandwidth at which this machine reads memory, measured with as many workers.

The peak is the most that the process had resident during a case, and workspace what of it is neither weights nor gradients. Made-up weights stay in memory beside what a backend makes of them; a checkpoint's do not, so that --checkpoint shows what a layer takes. The gradients of the full shape take 6.4 GB in FP32, 3.2 GB in BF16.

On ranks the tokens of a run are shared out over the columns, evenly. A run begins when all ranks are there and ends when all have done their part; its time is the first rank's, of the calls on the host on a GPU too, as no graph spans ranks. Beside tokens/s stands each rank's part of them, and how many bytes all ranks together send a token. Memory is the process's: of goroutines all, of processes the first one's; there the memory's bandwidth is not measured.

Examples:

    samebit bench
    samebit bench --shape qwen3-next --pass forward,forward+backward --tokens 1,64,1024 --out bench.txt
    samebit bench --shape mid --tp 2 --ep 2
    mpirun -np 4 samebit bench --checkpoint Qwen3-Next-80B-A3B-Instruct --layer 3 --tokens 4096
    samebit bench --from bench.txt --against rivals.txt`
}

// Run implements command.
func (c *benchCommand) Run(e *env) error {
	if len(c.Tokens) == 0 || len(c.Pass) == 0 {
		return fmt.Errorf("--tokens %v, --pass %v: found none of one: need at least one of each", c.Tokens, c.Pass)
	}
	for _, n := range c.Tokens {
		if n < 1 || n > mostTokens {
			return fmt.Errorf("--tokens: found %d: need 1 to %d", n, mostTokens)
		}
	}
	if err := checkLayer(c.Layer, c.Checkpoint); err != nil {
		return err
	}
	if c.Count < 0 || c.Time < 0 {
		return fmt.Errorf("--count %d, --time %v: need at least 0", c.Count, c.Time)
	}
	if c.Against != "" {
		results, err := readLines(c.Against)
		if err != nil {
			return fmt.Errorf("--against: %w", err)
		}
		c.Result.against = bench.NewAgainst(results)
	}
	if c.From != "" {
		results, err := readLines(c.From)
		if err != nil {
			return fmt.Errorf("--from: %w", err)
		}
		for _, r := range results {
			c.add(r)
		}
		return nil
	}
	ranks, err := c.join(e)
	if err != nil {
		return err
	}
	if err := e.alike(first(ranks), "flags", fmt.Sprintf("--shape %s --layer %d --backend %v --tokens %v --pass %v --count %d --time %v",
		c.Shape, c.Layer, c.Backend, c.Tokens, c.Pass, c.Count, c.Time)); err != nil {
		return err
	}
	if c.Out != "" && e.rank == 0 {
		if err := writable(c.Out); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	err = c.measure(e, ranks)
	if err != nil && len(c.Result.Cases) > 0 {
		return partialError{err} // what was measured may have taken hours
	}
	return err
}

func readLines(path string) ([]*bench.Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return bench.Read(f, path)
}

// add notes a result, and what the others took.
func (c *benchCommand) add(r *bench.Result) {
	k := benchCase{Result: r}
	if a := c.Result.against; a != nil {
		k.Against = map[string]float64{}
		for _, by := range a.By {
			if s := a.Seconds(by, r.Case); s > 0 {
				k.Against[by] = s
			}
		}
	}
	c.Result.Cases = append(c.Result.Cases, k)
}

// measure runs all cases, and writes the lines.
func (c *benchCommand) measure(e *env, ranks []*parallel.Rank) error {
	settings := append(bench.Machine(), c.notes()...)
	if c.Bandwidth && e.ranks == 0 && slices.ContainsFunc(c.Backend, bench.ReadsHostMemory) {
		progress := e.progress("reading memory")
		b, err := bench.ReadBandwidth(cmp.Or(c.Workers, runtime.GOMAXPROCS(0)), progress.Set)
		progress.Close()
		if err != nil {
			return err
		}
		c.Result.Bandwidth = &b
		settings = append(settings, b.Settings()...)
	}
	open, err := c.opener(e, ranks)
	if err != nil {
		return err
	}
	lines := &keeper{}
	if e.rank == 0 {
		lines.path = c.Out
	}
	to := bench.NewWriter(lines)
	c.Result.Devices = map[string]string{}
	for _, backend := range c.Backend {
		progress := e.progress("loading weights")
		subject, err := open(samebit.Options{Backend: backend, Workers: c.Workers, Device: e.device, Progress: progress.Set})
		progress.Close()
		if err != nil {
			return err
		}
		c.Result.Devices[backend] = subject.Device()
		err = c.cases(e, subject, append(slices.Clip(settings), subject.Settings()...), to)
		if err := cmp.Or(err, subject.Close()); err != nil {
			return err
		}
	}
	return nil
}

// keeper writes a file anew with all that it was given, in place of the one before, so that no case is lost with those that come after
// it, nor on a disk that is full; without a path it writes none.
type keeper struct {
	path string
	all  []byte
}

func (k *keeper) Write(lines []byte) (int, error) {
	k.all = append(k.all, lines...)
	if k.path == "" {
		return len(lines), nil
	}
	return len(lines), replaceFile(k.path, func(w io.Writer) error {
		_, err := w.Write(k.all)
		return err
	})
}

// opener loads the layer: a checkpoint's, or one of weights that are made up once; of a process among several, its part.
func (c *benchCommand) opener(e *env, ranks []*parallel.Rank) (func(samebit.Options) (*bench.Subject, error), error) {
	if c.Checkpoint != "" {
		return func(o samebit.Options) (*bench.Subject, error) { return bench.Open(c.Checkpoint, c.Layer, o, ranks...) }, nil
	}
	s, err := testgen.Shape(c.Shape)
	if err != nil {
		return nil, fmt.Errorf("--shape: %w", err)
	}
	part := s.Whole()
	if len(ranks) > 0 {
		if err := ranks[0].Grid.Check(s); err != nil {
			return nil, err
		}
		if e.ranks > 0 {
			part = ranks[0].Part(s)
		}
	}
	progress := e.progress("making weights")
	defer progress.Close()
	w := bench.PartWeights(part, bench.Seed, progress.Set)
	return func(o samebit.Options) (*bench.Subject, error) { return bench.New(c.Shape, s, w, o, ranks...) }, nil
}

// cases runs a subject's cases.
func (c *benchCommand) cases(e *env, subject *bench.Subject, settings []bench.Setting, to *bench.Writer) error {
	for _, pass := range c.Pass {
		for _, tokens := range c.Tokens {
			progress := e.progress(subject.Case(pass, tokens).Part())
			r, err := subject.Measure(pass, tokens, bench.Budget{Count: c.Count, Time: c.Time}, progress.Set)
			progress.Close()
			if err != nil {
				return err
			}
			if b := c.Result.Bandwidth; b != nil && bench.ReadsHostMemory(subject.Backend()) {
				r.Share = r.Rate() / b.All
			}
			c.add(r)
			if err := to.Write(r, settings); err != nil {
				return err
			}
		}
	}
	return nil
}

// notes are the lines that say what was run.
func (c *benchCommand) notes() []bench.Setting {
	notes := map[string]string{"command": strings.Join(append([]string{"samebit"}, os.Args[1:]...), " ")}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				notes["commit"] = s.Value
			}
		}
	}
	maps.Copy(notes, c.Note)
	var settings []bench.Setting
	for _, key := range slices.Sorted(maps.Keys(notes)) {
		settings = append(settings, bench.Setting{Key: key, Value: notes[key]})
	}
	return settings
}

// Show implements command.
func (c *benchCommand) Show(p *ui.Printer) {
	r := &c.Result
	for _, backend := range slices.Sorted(maps.Keys(r.Devices)) {
		p.Line("backend %s: %s", backend, r.Devices[backend])
	}
	if b := r.Bandwidth; b != nil {
		p.Line("memory is read at %.1f GB/s, by one worker at %.1f", b.All/1e9, b.Core/1e9)
	}
	if len(r.Devices) > 0 {
		p.Line("")
	}
	header := ui.Row{"pass", "tokens", "median", "min", "max", "runs", "tokens/s", "GB/s", "of bandwidth", "GMAC/s", "peak", "workspace"}
	onRanks := slices.ContainsFunc(r.Cases, func(k benchCase) bool { return k.PerRank > 0 })
	if onRanks {
		header = append(header, "tokens/s a rank", "sent a token")
	}
	several := slices.ContainsFunc(r.Cases, func(k benchCase) bool { return k.By != r.Cases[0].By })
	if several {
		header = append(ui.Row{"by"}, header...)
	}
	var others []string
	if r.against != nil {
		others = r.against.By
	}
	for _, by := range others {
		header = append(header, by, "ratio")
	}
	var rows []ui.Row
	for _, k := range r.Cases {
		row := ui.Row{k.Pass, k.Tokens, duration(k.Median), duration(k.Min), duration(k.Max), k.Runs,
			fmt.Sprintf("%.0f", k.TokensPerSecond()), figure(k.Rate()/1e9, "%.1f"), figure(100*k.Share, "%.0f %%"),
			figure(k.MACRate()/1e9, "%.1f"), orDash(k.Memory.Peak), orDash(k.Memory.Workspace)}
		if onRanks {
			row = append(row, figure(k.PerRank, "%.0f"), orDash(int64(k.Between)))
		}
		if several {
			row = append(ui.Row{k.By}, row...)
		}
		for _, by := range others {
			if s, ok := k.Against[by]; ok {
				row = append(row, duration(s), fmt.Sprintf("%.2f", s/k.Median))
			} else {
				row = append(row, "-", "-")
			}
		}
		rows = append(rows, row)
	}
	p.Table(header, rows...)
	if len(r.Devices) > 0 {
		p.Line("")
		m := r.Cases[len(r.Cases)-1].Memory
		p.Line("of the last peak: weights made up %s, as loaded %s, gradients %s", orDash(m.Given), orDash(m.Loaded), orDash(m.Gradients))
		if sent := r.Cases[len(r.Cases)-1].Sent; sent != nil {
			p.Line("of the last case: %v", sent)
		}
	}
	if c.Out != "" {
		p.Line("%s", c.Out)
	}
}

// duration is a time for people, or a dash where there is none.
func duration(seconds float64) string {
	switch {
	case seconds == 0:
		return "-"
	case seconds >= 1:
		return fmt.Sprintf("%.2f s", seconds)
	case seconds >= 1e-3:
		return fmt.Sprintf("%.2f ms", 1e3*seconds)
	}
	return fmt.Sprintf("%.1f us", 1e6*seconds)
}

// orDash is a size, or a dash where there is none.
func orDash(bytes int64) string {
	if bytes == 0 {
		return "-"
	}
	return size(bytes)
}

// figure is a number, or a dash where there is none.
func figure(v float64, format string) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}
