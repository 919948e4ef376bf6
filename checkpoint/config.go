// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/samebit/samebit/checkpoint/internal/strict"
	"github.com/samebit/samebit/contract"
)

const configName = "config.json"

// Config is what config.json says about the mixture-of-experts layers.
type Config struct {
	ModelType string
	Layers    int            // how many decoder layers there are, dense ones among them
	Shape     contract.Shape // of every sparse layer
	MLPOnly   []int          // layers that are dense
	Step      int            // of the others, every Step-th is sparse
}

// family is how one model type reads its configuration, as transformers does.
type family struct {
	width     string // the field that holds the experts' width
	norm      bool   // norm_topk_prob where it is not given
	normFixed bool   // the model has no such field: it always does as norm says
}

var families = map[string]family{
	"qwen3_next":       {width: "moe_intermediate_size", norm: true},
	"qwen3_moe":        {width: "moe_intermediate_size"},
	"qwen2_moe":        {width: "moe_intermediate_size"},
	"qwen3_5_moe":      {width: "moe_intermediate_size", norm: true, normFixed: true},
	"qwen3_5_moe_text": {width: "moe_intermediate_size", norm: true, normFixed: true},
	"olmoe":            {width: "intermediate_size"},
	"mixtral":          {width: "intermediate_size", norm: true, normFixed: true},
}

// Bounds on what a configuration may say, so that a wrong one cannot ask for all the memory there is.
const (
	maxSize    = 1 << 24
	maxExperts = 1 << 16
	maxLayers  = 1 << 16
)

// Sparse reports whether layer n is a mixture of experts.
func (c *Config) Sparse(n int) bool { return !slices.Contains(c.MLPOnly, n) && (n+1)%c.Step == 0 }

func readConfig(fsys fs.FS) (*Config, error) {
	data, err := fs.ReadFile(fsys, configName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("found no %s: need it: %w", configName, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	c, err := parseConfig(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", configName, err)
	}
	return c, nil
}

func parseConfig(data []byte) (*Config, error) {
	all, err := parseFields(data)
	if err != nil {
		return nil, err
	}
	if !all.has("model_type") {
		return nil, errors.New("found no model_type: need it")
	}
	model := get(all, "model_type", "")
	if all.err != nil {
		return nil, all.err
	}
	kind, ok := families[model]
	if !ok {
		return nil, fmt.Errorf("found model_type %q: need one of %v", model, sorted(families))
	}
	f := all
	if text, ok := all.values["text_config"]; ok { // a model that sees, too, keeps its decoder's fields apart
		if f, err = parseFields(text); err != nil {
			return nil, fmt.Errorf("text_config: %w", err)
		}
	}
	c := &Config{
		ModelType: model,
		Layers:    f.size("num_hidden_layers", 1, maxLayers),
		MLPOnly:   get(f, "mlp_only_layers", []int(nil)),
		Step:      1,
		Shape: contract.Shape{
			Hidden:   f.size("hidden_size", 1, maxSize),
			Experts:  f.experts(),
			TopK:     f.size("num_experts_per_tok", 1, maxExperts),
			Width:    f.size(kind.width, 1, maxSize),
			NormTopK: get(f, "norm_topk_prob", kind.norm),
		},
	}
	if f.has("decoder_sparse_step") {
		c.Step = f.size("decoder_sparse_step", 1, maxLayers)
	}
	if f.has("shared_expert_intermediate_size") {
		c.Shape.SharedWidth = f.size("shared_expert_intermediate_size", 0, maxSize)
	}
	act := get(f, "hidden_act", "silu")
	switch {
	case f.err != nil:
		return nil, f.err
	case act != "silu":
		return nil, fmt.Errorf("found hidden_act %q: need \"silu\"", act)
	case kind.normFixed && c.Shape.NormTopK != kind.norm:
		return nil, fmt.Errorf("found norm_topk_prob %t: need %t, all that %s does", c.Shape.NormTopK, kind.norm, model)
	}
	return c, c.Shape.Check()
}

// fields are an object's members. Its readers keep the first error, to be looked at when all is read.
type fields struct {
	values map[string]json.RawMessage
	err    error
}

// parseFields reads an object; a member that is null counts as absent.
func parseFields(data []byte) (*fields, error) {
	f := &fields{values: map[string]json.RawMessage{}}
	err := strict.Document(data, func(dec *json.Decoder, key string) error {
		value, err := strict.Value(dec)
		if string(value) != "null" {
			f.values[key] = value
		}
		return err
	})
	return f, err
}

func (f *fields) has(key string) bool { return f.values[key] != nil }

// get reads a member, or gives the default where there is none.
func get[T any](f *fields, key string, absent T) T {
	if !f.has(key) {
		return absent
	}
	var value T
	if err := json.Unmarshal(f.values[key], &value); err != nil {
		f.fail("found %s %s: need %s", key, f.values[key], kindOf(value))
	}
	return value
}

// kindOf names a type as JSON does.
func kindOf(value any) string {
	switch value.(type) {
	case string:
		return "a string"
	case bool:
		return "true or false"
	case []int:
		return "a list of whole numbers"
	default:
		return "a whole number"
	}
}

// size reads a number, which must be there and within bounds.
func (f *fields) size(key string, least, most int) int {
	if !f.has(key) {
		f.fail("found no %s: need it", key)
		return 0
	}
	n := get(f, key, 0)
	if n < least || n > most {
		f.fail("found %s %d: need %d to %d", key, n, least, most)
	}
	return n
}

// experts reads the number of experts, for which there are two names.
func (f *fields) experts() int {
	const name, other = "num_experts", "num_local_experts"
	if !f.has(name) && !f.has(other) {
		f.fail("found neither %s nor %s: need one", name, other)
		return 0
	}
	if !f.has(name) {
		return f.size(other, 1, maxExperts)
	}
	n := f.size(name, 1, maxExperts)
	if o := get(f, other, n); o != n {
		f.fail("found %s %d and %s %d: need them to be equal", name, n, other, o)
	}
	return n
}

func (f *fields) fail(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}
