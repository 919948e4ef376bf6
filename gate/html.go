// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package gate

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
)

//go:embed report.html
var reportHTML string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"short":  func(digest string) string { return digest[:min(8, len(digest))] },
	"figure": func(v float64) string { return fmt.Sprintf("%.3g", v) },
	"shape":  describe,
	"cell":   func(r *Result, number, span int) cell { return cell{r, number, max(1, span)} },
}).Parse(reportHTML))

// WriteHTML writes the report as one page that needs nothing else: the cases by token count in colour, the figures against
// their bounds, the experts' load, the evidence.
func (r *Report) WriteHTML(w io.Writer) error {
	page := page{Report: r}
	for i, s := range r.Subjects {
		v := r.view(s)
		v.Number = i
		page.Views = append(page.Views, v)
	}
	return reportTemplate.Execute(w, page)
}

// page is what the template is given.
type page struct {
	*Report
	Views []view
}

// view is a subject's part of the page.
type view struct {
	SubjectRecord
	Number  int
	Counts  []int // the columns
	Rows    []viewRow
	Bars    []bar
	Columns []column
	Mean    float64 // the height of the mean load, from the top
}

// viewRow is a family of cases.
type viewRow struct {
	Title string
	ID    string
	Alone *Result   // the case, where it has no token count
	Cells []*Result // or the cases by count, nil where there is none
}

// All are the row's cases.
func (r viewRow) All() []*Result {
	return slices.DeleteFunc(append([]*Result{r.Alone}, r.Cells...), func(x *Result) bool { return x == nil })
}

// cell is what the template is given for one case of the table.
type cell struct {
	*Result
	Number, Span int
}

// bar is a measurement as a share of its bound: 100 reaches it.
type bar struct {
	Case string
	Measurement
	Share float64
}

// column is an expert's load in a chart of 100 by 100.
type column struct {
	Expert, Tokens          int
	Left, Top, Wide, Height float64
}

func (r *Report) view(s SubjectRecord) view {
	v := view{SubjectRecord: s}
	results := r.Of(s.Name)
	for i := range results {
		x := &results[i]
		if x.Tokens > 0 && !slices.Contains(v.Counts, x.Tokens) {
			v.Counts = append(v.Counts, x.Tokens)
		}
		for _, m := range x.Measured {
			if m.Bound > 0 {
				v.Bars = append(v.Bars, bar{x.ID, m, min(110, 100*m.Value/m.Bound)})
			}
		}
	}
	slices.Sort(v.Counts)
	for i := range results {
		x := &results[i]
		if n := len(v.Rows); n == 0 || v.Rows[n-1].ID != x.Family {
			v.Rows = append(v.Rows, viewRow{x.Title, x.Family, nil, make([]*Result, len(v.Counts))})
		}
		row := &v.Rows[len(v.Rows)-1]
		if x.Tokens == 0 {
			row.Alone, row.Cells = x, nil
			continue
		}
		row.Cells[slices.Index(v.Counts, x.Tokens)] = x
	}
	v.chart()
	return v
}

// chart lays out the experts' load.
func (v *view) chart() {
	if len(v.Load) == 0 {
		return
	}
	most, total := 1, 0
	for _, n := range v.Load {
		most, total = max(most, n), total+n
	}
	wide := 100 / float64(len(v.Load))
	for e, n := range v.Load {
		height := 96 * float64(n) / float64(most)
		v.Columns = append(v.Columns, column{e, n, float64(e) * wide, 100 - height, wide * 0.82, height})
	}
	v.Mean = 100 - 96*float64(total)/float64(len(v.Load))/float64(most)
}

// describe says a shape in a line.
func describe(s SubjectRecord) string {
	text := fmt.Sprintf("H=%d, %d experts, %d routes a token, I=%d", s.Shape.Hidden, s.Shape.Experts, s.Shape.TopK, s.Shape.Width)
	if s.Shape.SharedWidth > 0 {
		text += fmt.Sprintf(", a shared expert of %d", s.Shape.SharedWidth)
	}
	return text
}
