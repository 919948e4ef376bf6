// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package ui

import (
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Row is one row of a table.
type Row = table.Row

// Table prints rows under a header, which may be nil. Numbers stand to the right.
func (p *Printer) Table(header Row, rows ...Row) {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	style := t.Style()
	style.Format.Header = text.FormatDefault
	style.Options = table.Options{SeparateColumns: true, SeparateHeader: true}
	style.Box.PaddingLeft, style.Box.PaddingRight = "", ""
	style.Box.MiddleVertical, style.Box.MiddleSeparator = "  ", "  "
	if header != nil {
		t.AppendHeader(header)
	}
	t.AppendRows(rows)
	for line := range strings.Lines(t.Render()) {
		p.Line("%s", strings.TrimRight(line, " \n"))
	}
}
