// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The consumers' side of the backward's products. What was an output of the weights is summed over here, so the weights are the
// turned operand of the matrix instruction, and no copy of them is made: a stage has, for each 64 of their columns, 64 rows of 128 bytes.

#pragma once

#include "product.cuh"

// What leaves waits behind the ring: of each warpgroup, 64 tokens by 64 columns.
constexpr int leaving_pitch = 144, leaving_tokens = 64, leaving_bytes = leaving_tokens * leaving_pitch; // rows in different banks

// gathered says whether threads fill stages too, beside the copy engine.
template <class R, bool gathered> struct TurnedConsumer : Consumer<R> {
    using Consumer<R>::ring;
    __device__ __forceinline__ explicit TurnedConsumer(const R &r) : Consumer<R>(r) {}

    __device__ __forceinline__ uint32_t leaving() const { return ring.behind() + this->group * leaving_bytes; }
    __device__ __forceinline__ void sync() const { ptx::group_sync(1 + this->group, 128); }

    // stage puts 32 tokens by 16 columns of the warpgroup's 64 there, from a token on: v as 64 rows by tokens of accumulators hold
    // them, two tokens in each place.
    __device__ __forceinline__ void stage(int token, const uint32_t *v) const {
        uint32_t to = leaving() + (token + this->lane) * leaving_pitch + this->warp * 32;
        ptx::store_transposed4(to, v[0], v[2], v[4], v[6]);
        ptx::store_transposed4(to + 16, v[1], v[3], v[5], v[7]);
    }

    // unload writes them to rows of a matrix; the last columns may lie past it.
    __device__ __forceinline__ void unload(bf16_t *to, int64_t pitch, int tokens, int column, int width) const {
        int thread = threadIdx.x & 127, chunk = thread % 8;
        column += chunk * 8;
        bool whole = (pitch & 7) == 0 && (reinterpret_cast<uintptr_t>(to) & 15) == 0;
        for (int t = thread / 8; t < tokens; t += 16)
            store_eight(to + t * pitch + column, ptx::load_shared16(leaving() + t * leaving_pitch + chunk * 16), width - column, whole);
    }

    // ask has the tensor cores multiply stage s into acc.
    template <int n> __device__ __forceinline__ void ask(float *acc, int s) {
        constexpr int further = 16 * row_bytes >> 4; // 16 terms
        ptx::barrier_wait(ring.full(ring.stage), ring.phase);
        if constexpr (gathered) ptx::fence_async();
        uint64_t a = ptx::wgmma_tile(ring.a() + this->group * (R::a_bytes / 2)), b = ptx::wgmma_tile(ring.b());
        ptx::wgmma_fence();
#pragma unroll
        for (int k = 0; k < stage_terms / 16; k++) {
#pragma unroll
            for (int m = 0; m < R::copies; m++)
                wgmma<n, 1>::step(acc + m * (R::most / 2), a + m * (64 * row_bytes >> 4) + further * k, b + 2 * k, s + k);
        }
        ptx::wgmma_commit();
    }

    // multiply runs some stages into acc, from +0. While the first of them run it does other work, piece by piece.
    template <int n, int pieces, class Piece> __device__ __forceinline__ void multiply(float *acc, int stages, Piece piece) {
        int before = 0, first = 0;
        auto past = [&](int s) {
            ptx::wgmma_wait<1>();
            if (s > 0) this->release(before);
            before = ring.stage;
            ring.next();
        };
        if (stages >= pieces) {
            first = pieces;
#pragma unroll
            for (int i = 0; i < pieces; i++) {
                ask<n>(acc, i);
                piece(i);
                past(i);
            }
        } else {
#pragma unroll
            for (int i = 0; i < pieces; i++) piece(i);
        }
        for (int s = first; s < stages; s++) {
            ask<n>(acc, s);
            past(s);
        }
        ptx::wgmma_wait<0>();
        this->release(before);
    }

    // multiply_any is multiply for the n tokens of a tile, n a multiple of step.
    template <int step, int pieces, int n = step, class Piece>
    __device__ __forceinline__ void multiply_any(float *acc, int tokens, int stages, Piece piece) {
        if constexpr (n < R::most) {
            if (tokens > n) return multiply_any<step, pieces, n + step>(acc, tokens, stages, piece);
        }
        multiply<n, pieces>(acc, stages, piece);
    }
};
