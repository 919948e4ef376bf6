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

// Of a piece of a warp's accumulators (product.cuh), v[4j] and v[4j+1] are gates of two tokens, v[4j+2] and v[4j+3] their ups, h[j]
// both results. swiglu_near approximates them, and says which pairs that does not settle, a bit each: those too close to where
// two BF16 numbers meet to say which is right. swiglu_exact gives the same where it does.
__device__ __forceinline__ uint32_t swiglu_near(const float (&v)[16], uint32_t (&h)[4]) {
    uint32_t open = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float *p = v + 4 * j;
        float s0, s1;
        contract::silu_near2(p[0], p[1], s0, s1);
        s0 = __fmul_rn(s0, p[2]), s1 = __fmul_rn(s1, p[3]);
        bool settled = contract::silu_is_near(p[0]) & contract::silu_is_near(p[1]) & contract::rounds_alike(s0, s1);
        open |= settled ? 0 : 1u << j;
        h[j] = contract::round2(s0, s1);
    }
    return open;
}

__device__ __forceinline__ void swiglu_exact(const float (&v)[16], uint32_t (&h)[4]) {
    bool easy = true;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float *p = v + 4 * j;
        // An infinite up could make a NaN of a gate whose SiLU is zero in one way alone.
        easy &= contract::silu_is_easy(p[0]) & contract::silu_is_easy(p[1]) & (fabsf(p[2]) < contract::infinity()) &
                (fabsf(p[3]) < contract::infinity());
    }
    if (__all_sync(~0u, easy)) {
#pragma unroll
        for (int j = 0; j < 4; j++) h[j] = swiglu2_easy(v + 4 * j);
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) h[j] = swiglu2(v + 4 * j);
    }
}

// OpenPairs are a warp's pairs that approximations do not settle: few, as a rule, and so a lane each, at the end. They wait in shared
// memory, each of this many bytes.
struct OpenPairs {
    static constexpr int room = 32, bytes = 16 + 2;
    uint32_t at;
    int lane, count = 0;

    __device__ __forceinline__ OpenPairs(uint32_t memory, int l) : at(memory), lane(l) {}

    // put takes a piece's, and says whether there was room.
    __device__ __forceinline__ bool put(int piece, const float (&v)[16], uint32_t open) {
        int n = count;
#pragma unroll
        for (int j = 0; j < 4; j++) n += __popc(__ballot_sync(~0u, open >> j & 1));
        if (n > room) return false;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t lanes = __ballot_sync(~0u, open >> j & 1);
            int place = count + __popc(lanes & ((1u << lane) - 1));
            if (open >> j & 1) {
                ptx::store_shared16(at + 16 * place, make_uint4(__float_as_uint(v[4 * j]), __float_as_uint(v[4 * j + 1]),
                                                                __float_as_uint(v[4 * j + 2]), __float_as_uint(v[4 * j + 3])));
                ptx::store_shared2(at + 16 * room + 2 * place, uint16_t(piece << 7 | j << 5 | lane));
            }
            count += __popc(lanes);
        }
        return true;
    }

    // settle runs use(piece, j, lane, h) for each: pair j of a piece, of a lane.
    template <class Use> __device__ __forceinline__ void settle(Use use) const {
        if (count == 0) return;
        __syncwarp();
        if (lane < count) {
            uint4 bits = ptx::load_shared16(at + 16 * lane);
            uint32_t which = ptx::load_shared2(at + 16 * room + 2 * lane);
            float v[4] = {__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z), __uint_as_float(bits.w)};
            use(which >> 7, which >> 5 & 3, which & 31, swiglu2(v));
        }
        __syncwarp();
    }
};
