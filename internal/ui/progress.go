// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// logEvery is how often progress is logged where there is no terminal. Work that is shorter logs nothing.
const logEvery = 10 * time.Second

// Progress says how far long work is: a bar on a terminal, which goes when the work is done, and a log line now and then
// elsewhere.
type Progress struct {
	name string
	bars *mpb.Progress // nil where w is not a terminal
	bar  *mpb.Bar
	log  *slog.Logger
	next time.Time // of the next log line
}

// NewProgress is the progress of the work of that name, shown on w.
func NewProgress(w io.Writer, name string) *Progress {
	p := &Progress{name: name, log: slog.New(slog.NewTextHandler(w, nil)), next: time.Now().Add(logEvery)}
	if IsTerminal(w) {
		p.bars = mpb.New(mpb.WithOutput(w), mpb.WithWidth(80))
	}
	return p
}

// Set says that so much of the total is done.
func (p *Progress) Set(done, total int64) {
	if p.bars == nil {
		if now := time.Now(); now.After(p.next) && total > 0 {
			p.next = now.Add(logEvery)
			p.log.Info(p.name, "done", fmt.Sprintf("%d%%", 100*done/total))
		}
		return
	}
	if p.bar == nil {
		p.bar = p.bars.AddBar(total, mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name(p.name+" ")),
			mpb.AppendDecorators(decor.Percentage(), decor.AverageETA(decor.ET_STYLE_GO, decor.WC{W: 8})))
	}
	p.bar.SetCurrent(done)
}

// Close takes the bar away, wherever it stands.
func (p *Progress) Close() {
	if p.bar != nil {
		p.bar.Abort(true)
	}
	if p.bars != nil {
		p.bars.Wait()
	}
}
