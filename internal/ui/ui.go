// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Package ui is how the program talks to people: lines, tables, colour, progress. Colour and moving bars appear on terminals
// alone, and colour not where NO_COLOR is set.
package ui

import (
	"fmt"
	"io"
	"os"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/vbauerster/cupwriter"
)

// Printer writes for people.
type Printer struct {
	w     io.Writer
	color bool
	err   error // the first of writing
}

// Err is why not everything could be written; nil where it was.
func (p *Printer) Err() error { return p.err }

// checked notes the first error of writing, and writes no more then.
type checked struct {
	io.Writer
	p *Printer
}

func (c checked) Write(b []byte) (int, error) {
	if c.p.err != nil {
		return 0, c.p.err
	}
	n, err := c.Writer.Write(b)
	c.p.err = err
	return n, err
}

// New makes a printer that writes to w.
func New(w io.Writer) *Printer {
	p := &Printer{color: IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	p.w = checked{w, p}
	return p
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool { return cupwriter.New(w, false).IsTerminal() }

// Line prints one line.
func (p *Printer) Line(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

// Good is s in the colour of success.
func (p *Printer) Good(s string) string { return p.paint(s, text.FgGreen) }

// Bad is s in the colour of failure.
func (p *Printer) Bad(s string) string { return p.paint(s, text.FgRed) }

func (p *Printer) paint(s string, c text.Color) string {
	if !p.color {
		return s
	}
	return c.EscapeSeq() + s + text.Reset.EscapeSeq()
}
