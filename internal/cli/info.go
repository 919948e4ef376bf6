// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/samebit/samebit/backend"
	"github.com/samebit/samebit/checkpoint"
	"github.com/samebit/samebit/contract"
	"github.com/samebit/samebit/internal/ui"
)

// infoCommand shows what there is.
type infoCommand struct {
	Checkpoint string `arg:"" optional:"" name:"ckpt" help:"Hugging Face folder." json:"checkpoint,omitempty"`
	Layer      *int   `placeholder:"N" help:"Find this layer in the folder, too, and read all of its weights once." json:"layer,omitempty"`

	Result infoResult `kong:"-" json:"result"`
}

type infoResult struct {
	Version    string          `json:"version"`
	Contract   int             `json:"contract"`
	Go         string          `json:"go"`
	Platform   string          `json:"platform"`
	CPUs       int             `json:"cpus"`
	Features   []string        `json:"cpu_features"`
	Backends   []backendInfo   `json:"backends"`
	Checkpoint *checkpointInfo `json:"checkpoint,omitempty"`
}

type backendInfo struct {
	Name   string `json:"name"`
	Device string `json:"device,omitempty"`
	Error  string `json:"error,omitempty"` // why this machine cannot run it
}

type checkpointInfo struct {
	Model      string     `json:"model_type"`
	Layers     int        `json:"layers"`
	Sparse     []int      `json:"sparse_layers"`
	Shape      shapeInfo  `json:"shape"`
	LayerBytes int64      `json:"layer_bytes"` // of one layer's mixture-of-experts weights
	FileBytes  int64      `json:"file_bytes"`  // of all safetensors files in the folder
	Layer      *layerInfo `json:"layer,omitempty"`
}

type shapeInfo struct {
	Hidden      int  `json:"hidden"`
	Experts     int  `json:"experts"`
	TopK        int  `json:"top_k"`
	Width       int  `json:"width"`
	SharedWidth int  `json:"shared_width"`
	NormTopK    bool `json:"norm_top_k"`
}

type layerInfo struct {
	Index   int    `json:"index"`
	Names   string `json:"names"` // what its tensors' names begin with
	Layout  string `json:"layout"`
	Tensors int    `json:"tensors"`
}

func (*infoCommand) Help() string {
	return `Shows the versions, the backends and what they run on, and the processor's features. Of a checkpoint: its model type, its sparse layers, their shape and size; with --layer that layer's layout, once all its weights are found to be there, of the right type and shape, and finite.

Examples:

    samebit info
    samebit info Qwen3-Next-80B-A3B-Instruct --layer 3 --json`
}

// Run implements command.
func (c *infoCommand) Run(*env) error {
	r := &c.Result
	r.Version, r.Contract, r.Go = version(), contract.Version, runtime.Version()
	r.Platform, r.CPUs, r.Features = runtime.GOOS+"/"+runtime.GOARCH, runtime.NumCPU(), cpuFeatures()
	for _, name := range backend.Names() {
		r.Backends = append(r.Backends, tryBackend(name))
	}
	if c.Checkpoint == "" {
		if c.Layer != nil {
			return fmt.Errorf("--layer %d: found no checkpoint: need its folder, too", *c.Layer)
		}
		return nil
	}
	from, err := checkpoint.Open(c.Checkpoint)
	if err != nil {
		return err
	}
	defer from.Close()
	if r.Checkpoint, err = c.describe(from); err != nil {
		return err
	}
	return nil
}

func tryBackend(name string) backendInfo {
	b, err := backend.Open(name, backend.Options{})
	if err != nil {
		return backendInfo{Name: name, Error: err.Error()}
	}
	defer b.Close()
	return backendInfo{Name: name, Device: b.Device()}
}

func (c *infoCommand) describe(from *checkpoint.Checkpoint) (*checkpointInfo, error) {
	config := from.Config()
	info := &checkpointInfo{Model: config.ModelType, Layers: config.Layers, Shape: shapeInfo(config.Shape)}
	for n := range config.Layers {
		if config.Sparse(n) {
			info.Sparse = append(info.Sparse, n)
		}
	}
	for _, entry := range (checkpoint.Layout{}).Entries(0, config.Shape) { // every layout has as many elements
		for _, p := range entry.Parts {
			info.LayerBytes += 2 * int64(p.Len(config.Shape))
		}
	}
	files, err := filepath.Glob(filepath.Join(c.Checkpoint, "*.safetensors"))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		stat, err := os.Stat(f)
		if err != nil {
			return nil, err
		}
		info.FileBytes += stat.Size()
	}
	if c.Layer == nil {
		return info, nil
	}
	l, err := from.Layer(*c.Layer)
	if err != nil {
		return nil, err
	}
	info.Layer = &layerInfo{Index: l.Index, Names: fmt.Sprintf("%s%d.%s", l.Layout.Prefix, l.Index, l.Layout.Block),
		Layout: "one tensor a matrix of an expert", Tensors: len(l.Tensors)}
	if l.Layout.Fused {
		info.Layer.Layout = "fused: one tensor for all experts"
	}
	return info, nil
}

// Show implements command.
func (c *infoCommand) Show(p *ui.Printer) {
	r := &c.Result
	p.Table(nil,
		ui.Row{"samebit", r.Version}, ui.Row{"contract", fmt.Sprint(r.Contract)},
		ui.Row{"go", r.Go + " " + r.Platform}, ui.Row{"cpus", fmt.Sprint(r.CPUs)},
		ui.Row{"cpu features", strings.Join(r.Features, " ")})
	p.Line("")
	var rows []ui.Row
	for _, b := range r.Backends {
		rows = append(rows, ui.Row{b.Name, b.Device + p.Bad(b.Error)})
	}
	p.Table(ui.Row{"backend", "runs on"}, rows...)
	if r.Checkpoint != nil {
		p.Line("")
		r.Checkpoint.show(p, c.Checkpoint)
	}
}

func (i *checkpointInfo) show(p *ui.Printer, path string) {
	s := i.Shape
	shared := "none"
	if s.SharedWidth > 0 {
		shared = fmt.Sprintf("width %d", s.SharedWidth)
	}
	over := "all experts"
	if s.NormTopK {
		over = "the selected"
	}
	rows := []ui.Row{
		{"checkpoint", path}, {"model type", i.Model},
		{"layers", fmt.Sprintf("%d, %d of them sparse", i.Layers, len(i.Sparse))},
		{"hidden size", fmt.Sprint(s.Hidden)},
		{"experts", fmt.Sprintf("%d of width %d, %d a token", s.Experts, s.Width, s.TopK)},
		{"shared expert", shared}, {"weights normalised", "over " + over},
		{"size", fmt.Sprintf("%s a sparse layer, %s of files", size(i.LayerBytes), size(i.FileBytes))},
	}
	if l := i.Layer; l != nil {
		rows = append(rows, ui.Row{fmt.Sprintf("layer %d", l.Index), fmt.Sprintf("%s* %d tensors, %s, all finite", l.Names, l.Tensors, l.Layout)})
	}
	p.Table(nil, rows...)
}
