// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"testing"

	"github.com/samebit/samebit/contract"
)

const goldenFile = "testdata/golden.json"

// golden is one small case: an operation, its inputs and its outputs. Numbers are bit patterns in hex, 8 digits for FP32
// and 4 for BF16, "" is what is not there; ids, counts and flags are themselves. Why is for readers alone.
type golden struct {
	Op  string         `json:"op"`
	Why string         `json:"why"`
	In  map[string]any `json:"in"`
	Out map[string]any `json:"out"`
}

// TestGolden holds golden.json to the contract: its outputs, computed anew from the inputs in the file, and its list of
// cases. With -update it writes the file. The Python witness recomputes the same file from the text of the rules.
func TestGolden(t *testing.T) {
	fresh := goldenCases()
	for i := range fresh {
		fresh[i].In = plain(t, fresh[i].In)
		fresh[i].Out = plain(t, compute(fresh[i]))
	}
	if *update {
		var text bytes.Buffer
		text.WriteString("[\n")
		for i, c := range fresh {
			line, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(line)
			text.WriteString(map[bool]string{true: "\n", false: ",\n"}[i == len(fresh)-1])
		}
		text.WriteString("]\n")
		if err := os.WriteFile(goldenFile, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	var cases []golden
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	stale := 0
	for i, c := range cases {
		if got := plain(t, compute(c)); !reflect.DeepEqual(got, c.Out) {
			t.Errorf("case %d (%s, %s):\n got %v\nwant %v", i, c.Op, c.Why, got, c.Out)
		}
		if i < len(fresh) && (c.Op != fresh[i].Op || c.Why != fresh[i].Why || !reflect.DeepEqual(c.In, fresh[i].In)) {
			if stale++; stale == 1 {
				t.Errorf("case %d (%s, %s) is not the one that goldenCases makes: run with -update", i, c.Op, c.Why)
			}
		}
	}
	if len(cases) != len(fresh) {
		t.Errorf("%s has %d cases, goldenCases %d: run with -update", goldenFile, len(cases), len(fresh))
	}
	t.Logf("%d cases", len(cases))
}

// plain is v as JSON gives it back.
func plain(t *testing.T, v map[string]any) (p map[string]any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// compute gives the outputs of a case, whose inputs are as JSON gives them.
func compute(c golden) map[string]any {
	in := fields(c.In)
	switch c.Op {
	case "tc16":
		return map[string]any{"acc": hex(contract.TC16(in.f32("acc"), in.bf16s("a"), in.bf16s("b")))}
	case "tcdot":
		if s := in.integer("segment"); s > 0 {
			return map[string]any{"d": hex(contract.TCDotSegments(in.bf16s("a"), in.bf16s("b"), s))}
		}
		return map[string]any{"d": hex(contract.TCDot(in.bf16s("a"), in.bf16s("b")))}
	case "exp":
		return map[string]any{"y": hex(contract.Exp(in.f32("x")))}
	case "sigmoid":
		return map[string]any{"y": hex(contract.Sigmoid(in.f32("x")))}
	case "tree":
		return map[string]any{"sum": hex(contract.Tree(in.f32s("v")))}
	case "round":
		return map[string]any{"b": hex(contract.Round(in.f32("f")))}
	case "swiglu":
		return map[string]any{"h": hex(contract.SwiGLU(in.f32("g"), in.f32("u")))}
	case "swiglu_backward":
		dg, du := contract.SwiGLUBackward(in.f32("g"), in.f32("u"), in.f32("q"), in.f32("w"))
		return map[string]any{"dg": hex(dg), "du": hex(du)}
	case "topk":
		return map[string]any{"ids": contract.Select(in.f32s("logits"), in.integer("k"))}
	case "weights":
		return map[string]any{"w": hexes(contract.RouteWeights(in.f32s("logits"), in.ids("ids"), in["norm"].(bool)))}
	case "combine":
		var rows [][]contract.BF16
		for _, row := range in["rows"].([]any) {
			rows = append(rows, fields{"": row}.bf16s(""))
		}
		return map[string]any{"y": hexes(contract.Combine(rows, in.f32s("w"), in.bf16s("shared"), in.f32("z")))}
	case "router_gradient":
		return map[string]any{"dl": hexes(computeRouterGradient(in))}
	case "fold":
		return map[string]any{"acc": hex(computeFold(in.f32("acc"), in.bf16s("a"), in.bf16s("b")))}
	}
	panic("no golden operation " + c.Op)
}

// computeRouterGradient gives the gradients of all logits, in both modes.
func computeRouterGradient(in fields) []float32 {
	ids, norm := in.ids("ids"), in["norm"].(bool)
	dl := contract.RouteGradient(in.f32s("w"), in.f32s("dw"), ids, in.f32s("p"), norm)
	if !norm {
		return dl
	}
	all := make([]float32, in.integer("experts"))
	for k, e := range ids {
		all[e] = dl[k]
	}
	return all
}

// computeFold is one element of a weight gradient: that of an expert of one by one, whose three matrices must agree.
func computeFold(acc float32, a, b []contract.BF16) float32 {
	g := contract.ExpertGradient{Gate: []float32{acc}, Up: []float32{acc}, Down: []float32{acc}}
	for t := range a {
		g.Add(b[t:t+1], a[t:t+1], contract.RowGradient{DGate: a[t : t+1], DUp: a[t : t+1], HW: b[t : t+1]})
	}
	g.Flush()
	if bitsOf(g.Gate[0]) != bitsOf(g.Up[0]) || bitsOf(g.Gate[0]) != bitsOf(g.Down[0]) {
		panic(fmt.Sprintf("one fold gives %s, %s and %s", show(g.Gate[0]), show(g.Up[0]), show(g.Down[0])))
	}
	return g.Gate[0]
}

// fields are the inputs of a case, as JSON gives them.
type fields map[string]any

func (f fields) bits(v any) uint32 {
	bits, err := strconv.ParseUint(v.(string), 16, 32)
	if err != nil {
		panic(err)
	}
	return uint32(bits)
}

func (f fields) f32(name string) float32 {
	if f[name] == "" {
		return 0
	}
	return f32(f.bits(f[name]))
}

func (f fields) f32s(name string) (v []float32) {
	if f[name] == "" {
		return nil
	}
	for _, x := range f[name].([]any) {
		v = append(v, f32(f.bits(x)))
	}
	return v
}

func (f fields) bf16s(name string) (v []contract.BF16) {
	if f[name] == "" {
		return nil
	}
	for _, x := range f[name].([]any) {
		v = append(v, contract.BF16(f.bits(x)))
	}
	return v
}

func (f fields) ids(name string) (v []int32) {
	for _, x := range f[name].([]any) {
		v = append(v, int32(x.(float64)))
	}
	return v
}

func (f fields) integer(name string) int { return int(f[name].(float64)) }

// hex is v's bit pattern as golden.json writes it.
func hex[T number](v T) string {
	if b, is := any(v).(contract.BF16); is {
		return fmt.Sprintf("%04X", uint16(b))
	}
	return fmt.Sprintf("%08X", bitsOf(v))
}

func hexes[T number](v []T) []string {
	h := make([]string, len(v))
	for i := range v {
		h[i] = hex(v[i])
	}
	return h
}
