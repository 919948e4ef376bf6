// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// What the host passes to each kernel: one struct by value, whose twin is in params.go. Sizes count elements.

#pragma once

#include <cstdint>

using bf16_t = uint16_t;

struct alignas(64) TensorMap { // a CUtensorMap
    uint64_t opaque[16];
};

// Tile is some rows of one expert: those that one pass over the expert's weights serves.
struct alignas(16) Tile {
    int group; // the expert; the shared one is expert E
    int row;   // its first row in the plan's order
    int local; // and among the rows of its activations
    int rows;
};

// A token count is read on the device where count is not null, so that a captured graph serves any count up to its own.
struct Count {
    const int *device;
    int most;
    __device__ __forceinline__ int get() const { return device ? min(*device, most) : most; }
};

struct LogitsParams {
    TensorMap router; // [E+1,H]: the shared gate is row E; as many rows at a time as a block has
    TensorMap rows;   // x, likewise, where it is not gathered
    const bf16_t *x;
    int64_t x_pitch;
    float *partial; // [segments,T,E+1]: segments alone
    float *logits;  // [T,E]
    float *z;       // [T], or null
    Count tokens;
    int hidden, experts, bf16_logits;
};

struct SelectParams {
    const int *replay; // [T,K], or null
    const float *partial;
    float *logits, *z;
    int *status, *ids;
    float *weights;
    Count tokens;
    int segments; // of partial; 0 where logits and z are there already
    int experts, top_k, norm, bf16_logits;
};

struct PlanParams {
    const int *ids; // [T,K]
    int *offsets, *token, *slot, *row;
    Tile *tiles;
    int *tile_count;
    int *counts; // [blocks+1,E+1]: of each block of tokens; then of those before it
    const float *weights, *z; // [T,K], [T]
    float *weight;            // [R]: each row's route weight, or null
    Count tokens;
    int experts, slots, shared, block_tokens, tile_most, tile_step;
    int tile_cluster; // a group's tiles come in so many; the last may have no rows
    int adds;         // lay adds up the blocks' counts
};

struct GateUpParams {
    TensorMap routed, shared; // gateUpRows of weights.go: gate and up, eight rows of each in turn
    const bf16_t *x;
    int64_t x_pitch;
    const int *token;
    const Tile *tiles;
    const int *tile_count;
    float *g, *u, *shared_g, *shared_u; // null where no backward will follow
    bf16_t *h, *shared_h;
    int hidden, experts, width, shared_width;
    int blocks; // of columns, of the widest expert
    int ahead;  // the plan is older than the kernel before: tiles and weights may be read before that one has ended
};

struct DownParams {
    TensorMap routed, shared;           // downRows of weights.go
    TensorMap routed_rows, shared_rows; // h, 16 rows at a time
    TensorMap out_rows;                 // out, likewise, where its rows are multiples of 16 bytes
    const Tile *tiles;
    const int *tile_count;
    bf16_t *out; // [R,H]
    int hidden, experts, width, shared_width;
    int blocks; // of columns
};

struct CombineParams {
    const int *row; // [T,K+1]
    const bf16_t *in;
    const float *weights, *z;
    const int *status;
    bf16_t *y;
    Count tokens;
    int hidden, slots, shared;
};

struct PadParams {
    const bf16_t *from;
    bf16_t *to;
    int64_t rows;
    int columns, pitch;
};

struct KnownParams { // d = the chain over K from c: a [64,K], b [16,K], c and d [64,16]
    const bf16_t *a, *b;
    const float *c;
    float *d;
    int k;
};

struct SiluParams {
    unsigned long long *different; // [2]: how many gates, and the last one
};
