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
        if constexpr (R::cluster > 1) {
            if (lane < R::cluster) ptx::barrier_arrive_at(ring.empty(stage), lane);
        } else {
            if (lane == 0) ptx::barrier_arrive(ring.empty(stage));
        }
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

    // pick gives 16 accumulators, those of 32 tokens: which counts the copies of weights first, then tokens. An epilogue is a loop over
    // them; unrolled over all accumulators, it would be most of the kernel's code, which runs once a tile.
    static constexpr int picks = (R::most + 31) / 32 * R::copies;
    template <int n = 0> static __device__ __forceinline__ void pick(const float *acc, int which, float (&v)[16]) {
        if constexpr (n + 1 < picks) {
            if (which != n) return pick<n + 1>(acc, which, v);
        }
        constexpr int copy = n % R::copies, first = n / R::copies * 16;
#pragma unroll
        for (int i = 0; i < 16; i++) v[i] = first + i < R::most / 2 ? acc[copy * (R::most / 2) + first + i] : 0.f;
        asm volatile("// %0" ::"n"(n)); // so that this is a branch, and no selection among all
    }

    // stage puts 32 tokens by 8 columns into the warp's staging memory, in its first half or its second.
    __device__ __forceinline__ void stage(int half, const uint32_t (&v)[4]) const {
        ptx::store_transposed4(ring.staging(threadIdx.x >> 5) + half * half_pitch + lane * 16, v[0], v[1], v[2], v[3]);
    }

    // unload writes what was staged, tokens of 8*halves columns from column on, to rows of a matrix; the last columns may lie past it.
    template <int halves>
    __device__ __forceinline__ void unload(bf16_t *to, int64_t pitch, int tokens, int column, int width) const {
        bool whole = (pitch & 7) == 0 && (reinterpret_cast<uintptr_t>(to) & 15) == 0;
        column += lane % halves * 8;
#pragma unroll
        for (int i = 0; i < halves; i++) {
            int t = (i * 32 + lane) / halves;
            uint4 v = ptx::load_shared16(ring.staging(threadIdx.x >> 5) + lane % halves * half_pitch + t * 16);
            bf16_t *dst = to + t * pitch + column;
            if (t >= tokens) continue;
            if (whole) {
                if (column < width) *reinterpret_cast<uint4 *>(dst) = v;
            } else {
                uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (int j = 0; j < 8; j++)
                    if (column + j < width) dst[j] = bf16_t(words[j / 2] >> 16 * (j % 2));
            }
        }
    }
};
