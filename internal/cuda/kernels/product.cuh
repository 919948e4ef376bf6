// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The consumers' side of a product: a warpgroup has 64 rows of weights of each copy's, by n tokens.

#pragma once

#include "arith.cuh"
#include "ring.cuh"
#include "wgmma_gen.cuh"

constexpr int apart_barrier = 3; // named; those of the warpgroups are 1 and 2

// Consumer is one thread of a warpgroup. Its accumulators: with q = lane/4 and r = lane%4, acc[4j] and acc[4j+1] are weight
// row 16*warp+q by tokens 8j+2r and 8j+2r+1, acc[4j+2] and acc[4j+3] the same of weight row 16*warp+q+8; the second 64 rows
// follow at acc[most/2].
template <class R> struct Consumer {
    R ring;
    int group, warp, lane; // the warpgroup, the warp in it, the lane
    bool apart;            // the warpgroups are, or need not be

    // keep_apart: the second warpgroup begins a stage after the first, so that one multiplies while the other does not.
    __device__ __forceinline__ explicit Consumer(const R &r, bool keep_apart = false) : ring(r), apart(!keep_apart) {
        group = threadIdx.x >> 7, warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31;
    }

    __device__ __forceinline__ void release(int stage) const { ring.give_back(stage, 1); }

    // multiply runs some stages into acc, from +0: one tcdot for each weight row and token.
    template <int n> __device__ __forceinline__ void multiply(float *acc, int stages) {
        int before = 0;
        if (!apart && group == 1) ptx::group_sync(apart_barrier, consumers);
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
            if (!apart && s == min(1, stages - 1)) {
                if (group == 0) ptx::group_arrive(apart_barrier, consumers);
                apart = true;
            }
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

    // A tile's accumulators fall into pieces of 16 to a thread: v[4j] to v[4j+3] are of eight tokens, copy by copy; blocks of them to
    // a copy. each_piece runs go(piece, v) for those that have tokens. It is unrolled: go should be short.
    static constexpr int blocks = 4 / R::copies, piece_tokens = 8 * blocks, pieces = R::most / piece_tokens;
    static __device__ __forceinline__ int pieces_of(int tokens) { return (tokens + piece_tokens - 1) / piece_tokens; }
    static __device__ __forceinline__ void take(const float *acc, int piece, float (&v)[16]) {
#pragma unroll
        for (int i = 0; i < 16; i++) v[i] = acc[i / (4 * blocks) * (R::most / 2) + piece * 4 * blocks + i % (4 * blocks)];
    }
    template <class Go> static __device__ __forceinline__ void each_piece(const float *acc, int tokens, Go go) {
        static_assert(R::most % piece_tokens == 0);
#pragma unroll
        for (int n = 0; n < pieces; n++) {
            if (n * piece_tokens >= tokens) break;
            float v[16];
            take(acc, n, v);
            go(n, v);
        }
    }

    // pick takes a piece that is chosen while the program runs: for what is rare.
    template <int n = 0> static __device__ __forceinline__ void pick(const float *acc, int which, float (&v)[16]) {
        if constexpr (n + 1 < pieces) {
            if (which != n) return pick<n + 1>(acc, which, v);
        }
        take(acc, n, v);
        asm volatile("// %0" ::"n"(n)); // so that this is a branch, and no selection among all
    }
};

// store_eight writes eight columns of a row in BF16, of which left are inside the matrix: at once where its rows are of whole 16 bytes.
__device__ __forceinline__ void store_eight(bf16_t *to, uint4 v, int left, bool whole) {
    if (whole) {
        if (left > 0) *reinterpret_cast<uint4 *>(to) = v;
        return;
    }
    uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < left) to[i] = bf16_t(words[i / 2] >> 16 * (i % 2));
}

// Rows is a warp's way from pieces to rows of a matrix, through its staging memory, where what is a column becomes a row. A piece has
// eight or sixteen columns of each copy: halves. Copies are so many columns apart: none between, where the weights' rows are
// ordered for that. A lane stores eight columns of some tokens. The last columns may lie past the matrix.
template <class R, int halves> struct Rows {
    static constexpr int parts = R::copies * halves, stored = 32 / parts; // tokens at a time
    bf16_t *to;                       // this lane's first token and columns
    int pitch, column, width, tokens; // tokens from this lane's first one on
    uint32_t put, get;                // where this lane stages, and takes
    bool whole;                       // 16 bytes can be stored at once

    // A token has a row of parts, each of 16 bytes, in an order that has eight tokens' or eight parts in different banks.
    static __device__ __forceinline__ uint32_t place(int token, int part) {
        return 16 * (token * parts + (part ^ (token * parts / 8 & (parts - 1))));
    }
    __device__ __forceinline__ Rows(uint32_t staging, int lane, bf16_t *first, int row_pitch, int count, int first_column, int apart,
                                    int row_width)
        : pitch(row_pitch), width(row_width), tokens(count - lane / parts) {
        constexpr int blocks = Consumer<R>::blocks;
        int part = lane % parts, matrix = lane / 8;
        column = first_column + part / halves * apart + part % halves * 8;
        to = first + int64_t(lane / parts) * pitch + column;
        put = staging + place(matrix % blocks * 8 + lane % 8, matrix / blocks * halves);
        get = staging + place(lane / parts, part);
        whole = (pitch & 7) == 0 && (reinterpret_cast<uintptr_t>(first) & 15) == 0;
    }

    // stage puts a half of a piece's columns there, two tokens in each register.
    __device__ __forceinline__ void stage(int half, const uint32_t (&v)[4]) const {
        ptx::store_transposed4(put ^ half * 16, v[0], v[1], v[2], v[3]);
    }

    // store writes a piece that was staged, store_any also where rows are not of whole 16 bytes.
    __device__ __forceinline__ void store(int piece) const {
        int first = piece * Consumer<R>::piece_tokens;
#pragma unroll
        for (int i = 0; i < Consumer<R>::piece_tokens; i += stored) {
            if (first + i < tokens && column < width)
                *reinterpret_cast<uint4 *>(to + int64_t(first + i) * pitch) = ptx::load_shared16(get + i * 16 * parts);
        }
    }
    __device__ __forceinline__ void store_any(int piece) const {
        if (whole) return store(piece);
        int first = piece * Consumer<R>::piece_tokens;
#pragma unroll 1
        for (int i = 0; i < Consumer<R>::piece_tokens; i += stored) {
            if (first + i < tokens)
                store_eight(to + int64_t(first + i) * pitch, ptx::load_shared16(get + i * 16 * parts), width - column, false);
        }
    }
};

// round16 casts a piece; r[i] are the columns 8*i to 8*i+7 of each copy's sixteen.
__device__ __forceinline__ void round16(const float (&v)[16], uint32_t (&r)[2][4]) {
#pragma unroll
    for (int j = 0; j < 8; j++) r[j % 2][j / 2] = contract::round2(v[2 * j], v[2 * j + 1]);
}

// Leaving is a warpgroup's way out where results leave through the ring: it writes its columns, 64 of each copy, to a stage that the
// producers gave, in strips of 64 columns by most tokens, swizzled by 128 bytes. From there a warp that copies nothing stores them,
// while the next tile's products run.
template <class R> struct Leaving {
    static constexpr int columns = 64 * R::copies, strip = R::b_bytes; // of a warpgroup; bytes
    static_assert(R::copies == 2, "a warpgroup's columns follow one another");
    R ring; // at the stage
    int group;

    // first is the first of the stages that were given for a tile.
    __device__ __forceinline__ Leaving(const R &first, int warpgroup) : ring(first), group(warpgroup) { ring.skip(group); }

    // place is where a token's eight columns from this one on are, the warpgroup's first being 0.
    __device__ __forceinline__ uint32_t place(int token, int column) const {
        return ring.a() + column / 64 * strip + token * row_bytes + ((column % 64 / 8 ^ (token & 7)) << 4);
    }

    // put has a warpgroup write its results of the block's next tile, by number, rounded, to the first of the stages that come next: from its
    // accumulators, of whose first copy this warp has sixteen columns, from this one on among the warpgroup's, of the next so many further.
    static __device__ __forceinline__ void put(Consumer<R> &consumer, int tile, const float *acc, int tokens, int column, int apart) {
        Leaving way(consumer.ring, consumer.group);
        consumer.ring.skip(groups);
        int matrix = consumer.lane / 8, token = matrix % consumer.blocks * 8 + consumer.lane % 8;
        uint32_t to = way.place(token, column + matrix / consumer.blocks * apart), beside = to ^ 16;
        ptx::barrier_wait(way.ring.full(way.ring.stage), way.ring.phase);
        consumer.each_piece(acc, tokens, [&](int piece, const float (&v)[16]) {
            uint32_t r[2][4], further = piece * consumer.piece_tokens * row_bytes;
            round16(v, r);
            ptx::store_transposed4(to + further, r[0][0], r[0][1], r[0][2], r[0][3]);
            ptx::store_transposed4(beside + further, r[1][0], r[1][1], r[1][2], r[1][3]);
        });
        ptx::fence_async();
        ptx::group_sync(1 + consumer.group, 128);
        if (threadIdx.x % 128 == 0) ptx::barrier_arrive(way.ring.made(consumer.group, tile));
    }

    // store_all is run by a warp for each warpgroup: it stores what leaves of a walk's tiles, each of so many stages, to rows of a matrix.
    template <class Walk, class Stages>
    static __device__ __forceinline__ void store_all(Walk walk, R at, int group, const TensorMap *map, bf16_t *out, int width, Stages stages_of) {
        for (int tile = 0; walk.more(); walk.next(), tile++) {
            at.skip(stages_of(walk.tile));
            Leaving(at, group).store(tile, map, out, width, walk.tile.row, walk.tile.rows, (walk.block() * groups + group) * columns);
            at.skip(groups);
        }
        ptx::store_wait();
    }

    // store has one warp store a tile's results to a matrix, from row and column on, and give the stage back. What it read itself is used by
    // then, so that handing the stage over needs no fence.
    __device__ __forceinline__ void store(int tile, const TensorMap *map, bf16_t *out, int width, int row, int rows, int column) const {
        int lane = threadIdx.x & 31, done = 0;
        bool whole = (width & 7) == 0 && (reinterpret_cast<uintptr_t>(out) & 15) == 0;
        ptx::barrier_wait(ring.made(group, tile), tile / 2 & 1);
        if (whole) {
            for (int i = lane; i < rows / 16 * R::copies; i += 32) {
                int first = i / R::copies * 16, at = i % R::copies * 64;
                if (column + at < width) ptx::tensor_store2(map, place(first, at), column + at, row + first);
            }
            ptx::store_commit();
            done = rows / 16 * 16;
        }
        // What is left of the rows, or all where they are not of whole 16 bytes.
        for (int i = lane; i < (rows - done) * (columns / 8); i += 32) {
            int r = done + i / (columns / 8), c = i % (columns / 8) * 8;
            store_eight(out + int64_t(row + r) * width + column + c, ptx::load_shared16(place(r, c)), width - column - c, whole);
        }
        ptx::store_wait_read<0>();
        __syncwarp();
        ring.give_back(ring.stage, consumers / 32);
    }
};
