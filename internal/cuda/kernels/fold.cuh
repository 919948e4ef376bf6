// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The fold's parameters (R10, R11): the twins of fold_params.go. A group is an expert, or the shared expert as group E. A
// group's stream is its rows of all the calls that are folded together, behind those that wait from before; its places are
// numbered from start[group] on, and each place knows where the row's five parts lie, so that no row is copied for the products.

#pragma once

#include "params.cuh"

// The parts of a row.
enum { part_x, part_dy, part_dgate, part_dup, part_hw, parts };

constexpr int segment_rows = 32; // of the stream, in one product (R11)
constexpr int fold_calls = 32;   // that one launch indexes

// FoldCall is one Add: where its rows lie.
struct FoldCall {
    const int *offsets, *token;                // the plan
    const bf16_t *x, *dy;                      // [T,H]
    const bf16_t *dgate, *dup, *hw;            // [R,I]
    const bf16_t *shared_dgate, *shared_dup, *shared_hw;
};

// FoldWork is a group with work.
struct alignas(16) FoldWork {
    int group, rows, start, room;
};

// FoldState is what the kernels count.
struct FoldState {
    int groups; // routed ones with work
    int shared; // whether the shared expert has work
    int next;   // the next piece of work that nobody has taken
    int room;
};

// FoldIndexParams is the index of the streams, made in turns of fold_calls calls.
struct FoldIndexParams {
    FoldCall calls[fold_calls];
    int *waiting;       // [E+1]: rows that wait in the store, before and after
    int *before;        // [E+1]: those that waited before
    int *count, *start; // [E+1]: rows and first place of a stream
    int *base;          // [calls,E+1]: place in the stream of a call's first row
    FoldWork *order;    // [E+1]: the routed groups with work, and the shared expert last
    FoldState *state;
    const bf16_t **rows; // [parts,places]: a laid part has 1 added to a whole segment's first row where all 32 follow one another
    bf16_t *store;       // [E+1,segment_rows] rows of all parts, each [H,H,I,I,I] wide; null where nothing ever waited
    int64_t places;
    int first, calls_here, last; // of the turns
    int whole;                   // only whole segments are folded, and the rest waits
    int every;                   // groups without rows are work too
    int experts, shared_group, hidden, width, shared_width, blocks;
};

// The copy engine's map of all of the GPU's memory from 2^30 on: 128 bytes of each of some rows, from any address; for FP32 gradients
// four times that, beside one another. Its last coordinate counts steps of map_step bytes.
constexpr uint64_t map_step = 1 << 30;

// FoldParams is the products.
struct FoldParams {
    TensorMap routed, shared;                 // of all memory, by the pitch of the laid rows
    TensorMap to_hidden, to_width, to_shared; // and of gradients: gate's and up's, down's, the shared expert's down's
    void *const *out;                         // [E+1,3]: gate, up, down
    const float *const *sums;                 // the same, which the products are added to; null for +0
    const FoldWork *order;
    FoldState *state;
    const bf16_t *const *rows;
    int64_t places;
    int experts, hidden, width, shared_width;
    int hidden_pitch, width_pitch, shared_pitch; // of the rows
};

struct FoldRouterParams {
    const int *offsets, *token, *slot, *row;
    const float *dlogits, *dz;
    const bf16_t *x;
    float *router, *shared_gate; // [E,H], [H]
    Count tokens;
    int experts, slots, hidden, pitch, shared;
};

struct FoldRoundParams { // to = the cast of from, which is +0 afterwards
    float *from;
    bf16_t *to;
    int64_t n;
};
