// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// What the host passes to the backward's kernels, as in params.cuh; the twins are in params_backward.go.

#pragma once

#include "params.cuh"

struct LiveParams {
    const bf16_t *dy; // [T,H]
    const int *ids;   // [T,K]
    int *live;        // [T,K]: ids, the first one -1 where the token takes no part
    Count tokens;
    int hidden, slots;
};

struct PlacesParams {
    const int *row, *forward; // [T,K+1]: the rows of the slots, now and in the forward
    const int *offsets;       // of the forward
    int *place;               // [R]: of each row, that among its expert's activations of the forward
    int *taken;               // of the work of q, how much is, from its beginning: two pieces for each block
    Count tokens;
    int experts, slots, begun, _;
};

struct DownBackwardParams {
    TensorMap routed, shared; // down [E,H,I], 64 columns by 64 rows at a time
    const bf16_t *dy;
    int64_t dy_pitch;
    const int *token, *place;
    const float *weight;
    const Tile *tiles;
    const int *tile_count;
    int *taken; // of the work
    const float *g, *u, *shared_g, *shared_u;
    bf16_t *dg, *du, *hw, *shared_dg, *shared_du, *shared_hw;
    float *partial; // [R,partials]: the sums of q*h over 64 columns
    int hidden, experts, width, shared_width;
    int blocks, partials; // of columns, of the widest expert; sums of a row
    int whole, ahead;     // rows of the activations and their gradients are multiples of 16 bytes; as in GateUpParams
};

struct TreeParams {
    const int *offsets;
    float *partial;
    float *dweight; // [R]
    int experts, width, shared_width, partials;
};

struct GateUpBackwardParams {
    TensorMap routed, shared;                    // gate and up [parts,E,I,H], 64 columns by 64 rows at a time
    TensorMap routed_rows[2], shared_rows[2];    // of each part, 16 rows at a time
    TensorMap out_rows;                          // out, likewise, where its rows are multiples of 16 bytes
    const Tile *tiles;
    const int *tile_count;
    bf16_t *out; // [R,H]
    int hidden, experts;
    int width, shared_width; // terms of a part
    int parts, shared_parts; // two; one where gate and up are joined
    int blocks, ahead;       // of columns; as in GateUpParams
};

struct JoinParams {
    const bf16_t *first, *second; // [R,I]
    bf16_t *to;                   // [R,pitch]
    int64_t rows;
    int columns, pitch;
};

struct RouteBackwardParams {
    const int *row, *ids;
    const float *dweight, *logits, *weights, *z;
    float *dlogits, *dz;
    Count tokens;
    int experts, slots, shared, room; // room: floats for each warp
};

struct InputParams {
    const int *row, *ids;
    const bf16_t *in;          // [R,H]
    const float *dlogits, *dz;
    const bf16_t *router;      // [E+1,pitch]
    bf16_t *dx;                // [T,H]
    int64_t router_pitch;
    Count tokens;
    int hidden, experts, slots, shared;
};
