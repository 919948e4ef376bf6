// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"reflect"
	"testing"

	"github.com/samebit/samebit/contract"
)

// Each family's own names and defaults.
func TestParseConfig(t *testing.T) {
	const common = `"num_hidden_layers":4,"hidden_size":8,"num_experts_per_tok":2`
	shape := contract.Shape{Hidden: 8, Experts: 4, TopK: 2, Width: 3}
	norm := shape
	norm.NormTopK = true
	shared := norm
	shared.SharedWidth = 5
	for _, c := range []struct {
		name, text string
		want       Config
	}{
		{"qwen3_next", `{"model_type":"qwen3_next","num_experts":4,"moe_intermediate_size":3,"intermediate_size":9,"shared_expert_intermediate_size":5,` + common + `}`,
			Config{"qwen3_next", 4, shared, nil, 1}},
		{"qwen3_next states norm", `{"model_type":"qwen3_next","num_experts":4,"moe_intermediate_size":3,"norm_topk_prob":false,` + common + `}`,
			Config{"qwen3_next", 4, shape, nil, 1}},
		{"qwen3_moe", `{"model_type":"qwen3_moe","num_local_experts":4,"moe_intermediate_size":3,"mlp_only_layers":[0],"decoder_sparse_step":2,` + common + `}`,
			Config{"qwen3_moe", 4, shape, []int{0}, 2}},
		{"qwen3_moe states norm", `{"model_type":"qwen3_moe","num_experts":4,"num_local_experts":4,"moe_intermediate_size":3,"norm_topk_prob":true,` + common + `}`,
			Config{"qwen3_moe", 4, norm, nil, 1}},
		{"qwen2_moe", `{"model_type":"qwen2_moe","num_experts":4,"moe_intermediate_size":3,"shared_expert_intermediate_size":0,"hidden_act":"silu",` + common + `}`,
			Config{"qwen2_moe", 4, shape, nil, 1}},
		{"olmoe", `{"model_type":"olmoe","num_experts":4,"intermediate_size":3,` + common + `}`,
			Config{"olmoe", 4, shape, nil, 1}},
		{"mixtral", `{"model_type":"mixtral","num_local_experts":4,"intermediate_size":3,` + common + `}`,
			Config{"mixtral", 4, norm, nil, 1}},
		{"qwen3_5_moe", `{"model_type":"qwen3_5_moe","hidden_size":1,"text_config":{"model_type":"qwen3_5_moe_text","num_experts":4,"moe_intermediate_size":3,"shared_expert_intermediate_size":5,` + common + `}}`,
			Config{"qwen3_5_moe", 4, shared, nil, 1}},
		{"qwen3_5_moe_text", `{"model_type":"qwen3_5_moe_text","num_experts":4,"moe_intermediate_size":3,` + common + `}`,
			Config{"qwen3_5_moe_text", 4, norm, nil, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseConfig([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(*got, c.want) {
				t.Errorf("got %+v, want %+v", *got, c.want)
			}
		})
	}
}

// As transformers has it: every step-th layer, counted from 1, but for those listed.
func TestSparse(t *testing.T) {
	c := Config{MLPOnly: []int{3}, Step: 2}
	for n, want := range []bool{false, true, false, false, false, true} {
		if got := c.Sparse(n); got != want {
			t.Errorf("layer %d: got %t, want %t", n, got, want)
		}
	}
}
