// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The gradients of the router and of the shared gate (R10): acc = RN(acc + RN(dl*x)), a chain over the tokens for each element,
// so only elements are spread over threads: a warp has 64 columns, two to a lane. Rows of x are asked for well ahead of their turn.

#include "arith.cuh"
#include "fold.cuh"

constexpr int router_columns = 64, router_batch = 32, dense_experts = 8;

__device__ __forceinline__ void add_token(float (&acc)[2], float dl, uint32_t x) {
    acc[0] = __fadd_rn(acc[0], __fmul_rn(dl, contract::bf16(x & 0xFFFF)));
    acc[1] = __fadd_rn(acc[1], __fmul_rn(dl, contract::bf16(x >> 16)));
}

// Batch is 32 rows of a group: each lane knows one row's token and gradient of the logit.
struct Batch {
    int64_t token;
    float dl;
    uint32_t x[router_batch];
};

// A block of one warp has a group, which is an expert whose logits alone the gradients are of, or the shared gate, and 64 columns.
extern "C" __global__ void __launch_bounds__(32) fold_router_f32(const __grid_constant__ FoldRouterParams p) {
    ptx::wait_before();
    ptx::start_next();
    int g = p.shared && blockIdx.y == 0 ? p.experts : blockIdx.y - p.shared; // the longest chain first
    int lane = threadIdx.x, column = blockIdx.x * router_columns + 2 * lane;
    int first = p.offsets[g], rows = p.offsets[g + 1] - first;
    if (rows == 0) return;
    auto look = [&](Batch &b, int from) {
        int r = first + min(from + lane, rows - 1);
        b.token = p.token[r];
        b.dl = g == p.experts ? p.dz[b.token] : p.dlogits[b.token * p.slots + p.slot[r]];
    };
    auto ask = [&](Batch &b) { // for x; rows have an even number of columns
#pragma unroll
        for (int i = 0; i < router_batch; i++) {
            int64_t t = __shfl_sync(~0u, b.token, i);
            b.x[i] = column < p.pitch ? __ldg(reinterpret_cast<const uint32_t *>(p.x + t * p.pitch + column)) : 0;
        }
    };
    float *to = (g == p.experts ? p.shared_gate : p.router + int64_t(g) * p.hidden) + column;
    float acc[2] = {};
    if (column < p.hidden) acc[0] = to[0];
    if (column + 1 < p.hidden) acc[1] = to[1];
    auto add = [&](const Batch &b, int n) {
        if (n >= router_batch) {
#pragma unroll
            for (int i = 0; i < router_batch; i++) add_token(acc, __shfl_sync(~0u, b.dl, i), b.x[i]);
        } else {
#pragma unroll
            for (int i = 0; i < router_batch; i++)
                if (i < n) add_token(acc, __shfl_sync(~0u, b.dl, i), b.x[i]);
        }
    };
    Batch one, two;
    look(one, 0);
    look(two, router_batch);
    ask(one);
    for (int from = 0; from < rows; from += 2 * router_batch) {
        ask(two);
        add(one, rows - from);
        look(one, from + 2 * router_batch);
        ask(one);
        add(two, rows - from - router_batch);
        look(two, from + 3 * router_batch);
    }
    if (column < p.hidden) to[0] = acc[0];
    if (column + 1 < p.hidden) to[1] = acc[1];
}

// Dense, every logit of a token has a gradient: a warp has some experts, and all tokens that take part.
extern "C" __global__ void __launch_bounds__(32) fold_router_dense_f32(const __grid_constant__ FoldRouterParams p) {
    ptx::wait_before();
    ptx::start_next();
    int first = blockIdx.y * dense_experts, lane = threadIdx.x, column = blockIdx.x * router_columns + 2 * lane;
    float acc[dense_experts][2] = {};
    auto each = [&](auto go) {
#pragma unroll
        for (int e = 0; e < dense_experts; e++) {
            if (first + e >= p.experts) break;
            float *to = p.router + int64_t(first + e) * p.hidden + column;
            if (column < p.hidden) go(acc[e][0], to[0]);
            if (column + 1 < p.hidden) go(acc[e][1], to[1]);
        }
    };
    each([](float &acc, float &to) { acc = to; });
    int tokens = p.tokens.get();
#pragma unroll 4
    for (int t = 0; t < tokens; t++) {
        if (p.row[int64_t(t) * (p.slots + 1)] < 0) continue;
        uint32_t x = column < p.pitch ? *reinterpret_cast<const uint32_t *>(p.x + int64_t(t) * p.pitch + column) : 0;
        const float *dl = p.dlogits + int64_t(t) * p.experts + first;
#pragma unroll
        for (int e = 0; e < dense_experts; e++)
            if (first + e < p.experts) add_token(acc[e], dl[e], x);
    }
    each([](float &acc, float &to) { to = acc; });
}

// round ends a sum: its one cast.
extern "C" __global__ void __launch_bounds__(256) fold_round_bf16(const __grid_constant__ FoldRoundParams p) {
    ptx::wait_before();
    ptx::start_next();
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < p.n; i += int64_t(gridDim.x) * blockDim.x) {
        p.to[i] = bf16_t(contract::round(p.from[i]));
        p.from[i] = 0.f;
    }
}
