// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The consumers' side of a product: a warpgroup has 64 rows of weights of each copy's, by n tokens.

#pragma once

#include "ring.cuh"
#include "wgmma_gen.cuh"

// Consumer is one thread of a warpgroup. Its accumulators: with q = lane/4 and r = lane%4, acc[4j] and acc[4j+1] are weight
// row 16*warp+q by tokens 8j+2r and 8j+2r+1, acc[4j+2] and acc[4j+3] the same of weight row 16*warp+q+8; the second 64 rows
// follow at acc[most/2].
template <class R> struct Consumer {
    R ring;
    int group, warp, lane; // the warpgroup, the warp in it, the lane

    __device__ __forceinline__ explicit Consumer(const R &r) : ring(r) {
        group = threadIdx.x >> 7, warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31;
    }

    __device__ __forceinline__ void release(int stage) const {
        if (lane == 0) ptx::barrier_arrive(ring.empty(stage));
    }

    // multiply runs some stages into acc, from +0: one tcdot for each weight row and token.
    template <int n> __device__ __forceinline__ void multiply(float *acc, int stages) {
        int before = 0;
        for (int s = 0; s < stages; s++) {
            ptx::barrier_wait(ring.full(ring.stage), ring.phase);
            ptx::fence_async(); // gathered rows are ordinary writes
            uint64_t a = ptx::wgmma_tile(ring.a() + group * (R::a_bytes / 2)), b = ptx::wgmma_tile(ring.b());
            ptx::wgmma_fence();
#pragma unroll
            for (int k = 0; k < stage_terms / 16; k++) {
#pragma unroll
                for (int m = 0; m < R::copies; m++)
                    wgmma<n>::step(acc + m * (R::most / 2), a + m * (64 * row_bytes >> 4) + 2 * k, b + 2 * k, s + k);
            }
            ptx::wgmma_commit();
            ptx::wgmma_wait<1>();
            if (s > 0) release(before);
            before = ring.stage;
            ring.next();
        }
        ptx::wgmma_wait<0>();
        release(before);
    }

    // multiply_any is multiply for the n tokens of a tile, n a multiple of step.
    template <int step, int n = step> __device__ __forceinline__ void multiply_any(float *acc, int tokens, int stages) {
        if constexpr (n < R::most) {
            if (tokens > n) return multiply_any<step, n + step>(acc, tokens, stages);
        }
        multiply<n>(acc, stages);
    }

    __device__ __forceinline__ void sync() const { ptx::group_sync(1 + group, 128); }

    // Where this lane's row of a block of four 8x8 blocks begins in the warpgroup's staging memory, for store_transposed4: tokens
    // 8*(lane/8)+lane%8, columns from 8*block on.
    __device__ __forceinline__ uint32_t staged(int block) const { return ring.staging(group) + lane * staging_pitch + block * 16; }

    // unload writes the staged tokens, columns of each, to rows of a matrix; the last columns may lie past the matrix.
    template <int columns>
    __device__ __forceinline__ void unload(bf16_t *to, int64_t pitch, int tokens, int column, int width) const {
        constexpr int chunks = columns / 8;
        int thread = threadIdx.x & 127, chunk = thread % chunks;
        column += chunk * 8;
        bool whole = (pitch & 7) == 0 && (reinterpret_cast<uintptr_t>(to) & 15) == 0;
        for (int t = thread / chunks; t < tokens; t += 128 / chunks) {
            uint4 v = ptx::load_shared16(ring.staging(group) + t * staging_pitch + chunk * 16);
            bf16_t *dst = to + t * pitch + column;
            if (whole) {
                if (column < width) *reinterpret_cast<uint4 *>(dst) = v;
            } else {
                uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (int i = 0; i < 8; i++)
                    if (column + i < width) dst[i] = bf16_t(words[i / 2] >> 16 * (i % 2));
            }
        }
    }
};
