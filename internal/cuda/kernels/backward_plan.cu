// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// What the backward's plan has beside the forward's: which tokens take part (R9), and where each row's activations lie.

#include "arith.cuh"
#include "backward.cuh"

// A warp for each token: does it have an expert, and a dy that is not all zero? Most are answered by the first few values.
extern "C" __global__ void __launch_bounds__(256) backward_live_i32(const __grid_constant__ LiveParams p) {
    ptx::wait_before();
    ptx::start_next();
    int t = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x & 31;
    if (t >= p.tokens.get()) return;
    const bf16_t *dy = p.dy + int64_t(t) * p.hidden;
    constexpr int each = 4;
    bool live = false;
    for (int j = lane; j - lane < p.hidden && !live; j += 32 * each) {
        uint32_t bits = 0;
#pragma unroll
        for (int i = 0; i < each; i++)
            if (j + 32 * i < p.hidden) bits |= dy[j + 32 * i];
        live = __any_sync(~0u, bits & 0x7FFF);
    }
    for (int k = lane; k < p.slots; k += 32) p.live[int64_t(t) * p.slots + k] = live ? p.ids[int64_t(t) * p.slots + k] : -1;
}

extern "C" __global__ void __launch_bounds__(256) backward_places_i32(const __grid_constant__ PlacesParams p) {
    ptx::wait_before();
    ptx::start_next();
    int wide = p.slots + 1;
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i == 0) *p.taken = p.begun;
    if (i >= int64_t(p.tokens.get()) * wide) return;
    int row = p.row[i];
    if (row >= 0) p.place[row] = p.forward[i] - (i % wide == p.slots ? p.offsets[p.experts] : 0);
}
