// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package cli is the samebit program, a command a file.
//
// A command is a struct: kong fills in its flags, Run does the work and keeps what it finds in the struct, Show prints that
// for people. With --json the struct itself is printed: it is the record of the run.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/tidy"
	"github.com/samebit/samebit/internal/ui"
)

// program is the commands, and the flags that all of them have.
type program struct {
	JSON    bool             `name:"json" help:"Print the record of the run as JSON on standard output, and nothing else there."`
	Version kong.VersionFlag `help:"Print the version and quit."`

	Run      runCommand      `cmd:"" help:"Run tokens through a layer of a checkpoint, forward and backward."`
	Compare  compareCommand  `cmd:"" help:"Compare two safetensors files, bit for bit."`
	Gate     gateCommand     `cmd:"" help:"Run the acceptance cases: what the contract promises, put to work on a layer."`
	Selftest selftestCommand `cmd:"" help:"Check the arithmetic of this machine against a tensor core's own results."`
	Bench    benchCommand    `cmd:"" help:"Time a layer, forward and backward, beside what this machine's memory can do."`
	Synth    synthCommand    `cmd:"" help:"Write a checkpoint of made-up weights, and inputs for it."`
	Info     infoCommand     `cmd:"" help:"Show what this program, this machine and a checkpoint are."`
}

// command is what each command does.
type command interface {
	// Run does the work. A failed check is an error made by failf; any other error is one of usage or input, after which nothing is
	// shown unless it is a partialError.
	Run(*env) error
	// Show prints what Run found.
	Show(*ui.Printer)
}

// env is what a command has beside its flags.
type env struct {
	stderr io.Writer

	rank, ranks int               // among processes that work together; 0 of 0 where there is one alone
	device      int               // the GPU of this rank
	leave       func(error) error // tells the others how the command has ended; nil where there are none

	whyStopped atomic.Pointer[string] // what SIGTERM means, where it has a meaning
}

// name is the command's, and the rank's where there are several.
func (e *env) name(command string) string {
	if e.ranks > 0 {
		return fmt.Sprintf("samebit %s: rank %d of %d", command, e.rank, e.ranks)
	}
	return "samebit " + command
}

// progress shows the progress of work on standard error: of ranks, the first one's.
func (e *env) progress(name string) *ui.Progress {
	if e.rank > 0 {
		return ui.NewProgress(io.Discard, name)
	}
	return ui.NewProgress(e.stderr, name)
}

// The exit statuses.
const (
	statusOK     = 0
	statusFailed = 1 // the work was done, and what was to be equal or right is not
	statusUsage  = 2 // wrong usage, wrong input, or something that this machine cannot do
)

// failedError is a check that failed.
type failedError struct{ error }

// partialError is an error after part of the work: the record of what was done is printed, and the exit status is 2.
type partialError struct{ error }

// failf makes the error of a check that failed: the record is printed, and the exit status is 1.
func failf(format string, args ...any) error { return failedError{fmt.Errorf(format, args...)} }

// Main runs the program and gives its exit status. Results go to stdout, errors and progress to stderr.
func Main(args []string, stdout, stderr io.Writer) (status int) {
	e := &env{stderr: stderr}
	defer e.tidyWhenStopped()()
	var p program
	parser := kong.Must(&p,
		kong.Name("samebit"),
		kong.Description(description),
		kong.Vars{"version": versionLine()},
		kong.Writers(stdout, stderr),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: 100}),
	)
	at, err := parser.Parse(args)
	if err != nil {
		command := "samebit"
		var parse *kong.ParseError
		if errors.As(err, &parse) && parse.Context.Selected() != nil {
			command = parse.Context.Selected().FullPath()
		}
		fmt.Fprintf(stderr, "%s: %v\nTry: %s --help\n", command, err, command)
		return statusUsage
	}
	c := at.Selected().Target.Addr().Interface().(command)
	err = c.Run(e)
	name := e.name(at.Selected().Name)
	if e.leave != nil {
		defer func() { // when all is printed
			if gone := e.leave(err); gone != nil && status == statusOK {
				fmt.Fprintf(stderr, "%s: its work was done, and not all have left: %v\n", name, gone)
				status = statusUsage
			}
		}()
	}
	var failed failedError
	var partial partialError
	switch {
	case errors.As(err, &failed):
		status = statusFailed
	case errors.As(err, &partial):
		status = statusUsage
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return statusUsage
	}
	switch {
	case e.rank > 0: // the first prints for all
	case p.JSON:
		if e := printRecord(stdout, at.Selected().Name, c, err); e != nil {
			fmt.Fprintf(stderr, "%s: %v\n", name, e)
			return statusUsage
		}
	default:
		out := ui.New(stdout)
		if c.Show(out); out.Err() != nil {
			fmt.Fprintf(stderr, "%s: %v\n", name, out.Err())
			return statusUsage
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
	}
	return status
}

// tidyWhenStopped has an interrupt, a hangup or a request to end do so with nothing half-written left behind, and with the status
// that shells expect. Those that the program was started to ignore, as nohup and a shell's background do, stay ignored.
func (e *env) tidyWhenStopped() (done func()) {
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGHUP, syscall.SIGTERM} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	go func() {
		s, ok := <-signals
		if !ok {
			return
		}
		tidy.Up()
		var why any = s
		if text := e.whyStopped.Load(); text != nil && s == syscall.SIGTERM {
			why = *text
		}
		fmt.Fprintf(e.stderr, "samebit: %v\n", why)
		os.Exit(128 + int(s.(syscall.Signal)))
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}

// record is a run as JSON.
type record struct {
	Command  string  `json:"command"`
	Contract int     `json:"contract"` // contract.Version
	Version  string  `json:"version"`  // of the program
	OK       bool    `json:"ok"`
	Failure  string  `json:"failure,omitempty"`
	Record   command `json:"record"` // the flags and the results
}

func printRecord(w io.Writer, name string, c command, failure error) error {
	r := record{Command: name, Contract: contract.Version, Version: version(), OK: failure == nil, Record: c}
	if failure != nil {
		r.Failure = failure.Error()
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

const description = `A mixture-of-experts layer whose bits depend on its inputs alone: not on the batch, its order, chunks, ` +
	`micro-batches, ranks, or the machine.

Exit status: 0 where all is well, 1 where a check failed or a difference was found, 2 for wrong usage or input.`
