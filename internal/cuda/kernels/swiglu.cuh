// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// SwiGLU (R6) of gates and ups in a warp's accumulators: h = bf16(silu(g) * u), in three ways that give one result.

#pragma once

#include "arith.cuh"

// swiglu2 is for any two numbers; swiglu2_easy for easy gates and finite ups, without a branch.
__device__ __forceinline__ uint32_t swiglu2(const float *v) {
    return contract::round2(__fmul_rn(contract::silu(v[0]), v[2]), __fmul_rn(contract::silu(v[1]), v[3]));
}
__device__ __forceinline__ uint32_t swiglu2_easy(const float *v) {
    return contract::round2(__fmul_rn(contract::silu_easy(v[0]), v[2]), __fmul_rn(contract::silu_easy(v[1]), v[3]));
}

// swiglu32 makes h of 32 tokens: v[4j] and v[4j+1] are gates of two, v[4j+2] and v[4j+3] their ups, h[j] both results. Most are
// settled by approximations; where one is too close to where two BF16 numbers meet to say which is right, the exact way says.
__device__ __forceinline__ void swiglu32(const float *v, uint32_t (&h)[4]) {
    bool settled[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float *p = v + 4 * j;
        float s0, s1;
        contract::silu_near2(p[0], p[1], s0, s1);
        s0 = __fmul_rn(s0, p[2]), s1 = __fmul_rn(s1, p[3]);
        settled[j] = contract::silu_is_near(p[0]) & contract::silu_is_near(p[1]) & contract::rounds_alike(s0, s1);
        h[j] = contract::round2(s0, s1);
    }
    if (__all_sync(~0u, settled[0] & settled[1] & settled[2] & settled[3])) return;
    bool easy = true;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float *p = v + 4 * j;
        // An infinite up could make a NaN of a gate whose SiLU is zero in one way alone.
        easy &= contract::silu_is_easy(p[0]) & contract::silu_is_easy(p[1]) & (fabsf(p[2]) < contract::infinity()) &
                (fabsf(p[3]) < contract::infinity());
    }
    easy = __all_sync(~0u, easy);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (__all_sync(~0u, settled[j])) continue;
        h[j] = easy ? swiglu2_easy(v + 4 * j) : swiglu2(v + 4 * j);
    }
}
