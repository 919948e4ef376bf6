// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestNoColourOffTerminal(t *testing.T) {
	var b bytes.Buffer
	p := New(&b)
	p.Line("%s %s", p.Good("same"), p.Bad("differ"))
	if got := b.String(); got != "same differ\n" {
		t.Errorf("%q", got)
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	New(&b).Table(Row{"tensor", "differ"}, Row{"y", 3}, Row{"topk_ids", 12})
	want := "tensor    differ\n────────  ──────\ny              3\ntopk_ids      12\n"
	if got := b.String(); got != want {
		t.Errorf("%q", got)
	}
}

func TestProgressOffTerminal(t *testing.T) {
	var b bytes.Buffer
	p := NewProgress(&b, "writing")
	p.Set(1, 4)
	if b.Len() > 0 {
		t.Errorf("short work says %q", b.String())
	}
	p.next = time.Now().Add(-1)
	p.Set(2, 4)
	p.Set(3, 4)
	p.Close()
	if got := b.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "msg=writing done=50%") {
		t.Errorf("%q", got)
	}
}

// What cannot be written is an error, the first one.
func TestErr(t *testing.T) {
	p := New(full{})
	p.Line("one")
	p.Table(Row{"tensor"}, Row{"y"})
	if p.Err() == nil || p.Err().Error() != "full after 3" {
		t.Errorf("found %v", p.Err())
	}
	if p := New(io.Discard); p.Err() != nil {
		t.Error(p.Err())
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 3, errors.New("full after 3") }
