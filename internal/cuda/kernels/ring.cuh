// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The pipeline that every product runs on. A stage in shared memory holds 64 terms of K: 128 or 256 rows of weights (operand M)
// and up to most tokens' rows (operand N); the router of many tokens has them the other way round. Four producer warps fill
// stages, weights by the copy engine and rows by gathering; two warpgroups multiply, each half of the weights' rows. Every product
// walks K upward in one accumulator (R1); the tile's size changes no bit. Blocks in a cluster have a tile each of one expert and
// share its weights: each copies a part of them to all.

#pragma once

#include "params.cuh"
#include "ptx.cuh"

constexpr int consumers = 256, producers = 128, threads = consumers + producers;
constexpr int groups = consumers / 128; // warpgroups that multiply
constexpr int copy_rows = 128, stage_terms = 64, row_bytes = 2 * stage_terms; // copy_rows: of weights, that one copy brings
constexpr int copy_bytes = copy_rows * row_bytes;
constexpr int staging_bytes = 1152; // of a warp: 16 tokens by 32 columns, or half of it and what waits there beside
constexpr int bars_bytes = 128;

template <int copies_, int most_, int depth, int cluster_ = 1> struct Ring {
    static constexpr int copies = copies_, most = most_, stages = depth, cluster = cluster_;
    static constexpr int a_bytes = copies * copy_bytes, b_bytes = most * row_bytes, bytes = a_bytes + b_bytes;
    static_assert(stages <= 8 && bytes % 1024 == 0, "tiles are swizzled over 1024 bytes; bars_bytes holds 16 barriers");
    static_assert(copies % cluster == 0, "a block copies whole parts");
    static constexpr uint16_t everyone = (1 << cluster) - 1; // of the cluster, as a mask
    // Whether down's results leave through stages: where experts have many rows, and stores would hold the next products up.
    static constexpr bool leaves = most > 128;
    static_assert(!leaves || (stages <= 4 && copies * b_bytes <= bytes), "a warpgroup's results fit a stage, and have two barriers");

    uint32_t base, bars;
    int stage = 0;
    uint32_t phase = 0;

    __device__ __forceinline__ explicit Ring(const void *shared) {
        base = (ptx::shared_address(shared) + 1023) & ~1023u;
        bars = base + stages * bytes;
    }
    __device__ __forceinline__ uint32_t a() const { return base + stage * bytes; }
    __device__ __forceinline__ uint32_t b() const { return a() + a_bytes; }
    __device__ __forceinline__ uint32_t full(int s) const { return bars + 8 * s; }
    __device__ __forceinline__ uint32_t empty(int s) const { return bars + 64 + 8 * s; }
    // A warpgroup's results are in the stage that it was given: for a tile, of two by turns. With one, a warp that has yet to look for the
    // first results could be overtaken by the next, where tiles have one stage.
    __device__ __forceinline__ uint32_t made(int group, int tile) const { return bars + 8 * (stages + tile % 2 * groups + group); }
    __device__ __forceinline__ uint32_t behind() const { return bars + bars_bytes; } // the ring: memory that a product has beside
    __device__ __forceinline__ uint32_t staging(int warp) const { return behind() + warp * staging_bytes; }
    __device__ __forceinline__ int rank() const { return cluster > 1 ? ptx::cluster_rank() : 0; }
    __device__ __forceinline__ void next() {
        if (++stage == stages) stage = 0, phase ^= 1;
    }
    __device__ __forceinline__ void skip(int n) {
        for (stage += n; stage >= stages; stage -= stages) phase ^= 1;
    }

    // init is called by every thread of the block; filling is how many threads arrive where a stage is full.
    __device__ __forceinline__ void init(int filling) const {
        if (threadIdx.x == 0) {
            for (int s = 0; s < stages; s++) {
                ptx::barrier_init(full(s), filling);
                ptx::barrier_init(empty(s), consumers / 32 * cluster);
            }
            if constexpr (leaves)
                for (int i = 0; i < 2 * groups; i++) ptx::barrier_init(made(i % groups, i / groups), 1);
            ptx::barrier_init_fence();
        }
        if constexpr (cluster > 1) ptx::cluster_sync();
        else __syncthreads();
    }

    // give_back has one warp give a stage back to the producers of all blocks of the cluster, for so many warps.
    __device__ __forceinline__ void give_back(int stage, int warps) const {
        int lane = threadIdx.x & 31;
        if constexpr (cluster > 1) {
            if (lane < warps * cluster) ptx::barrier_arrive_at(empty(stage), lane % cluster);
        } else {
            if (lane < warps) ptx::barrier_arrive(empty(stage));
        }
    }

    // leave is the last thing that a thread does: no block may go while others copy to it.
    __device__ __forceinline__ void leave() const {
        if constexpr (cluster > 1) ptx::cluster_sync();
    }
};

// Producer is one thread of the four warps that fill stages. It gathers eighths of rows: of row 16i + 4*warp + lane/8 of a tile for
// every i.
template <class R> struct Producer {
    static constexpr int most = R::most, held = (most + 127) / 128;
    static constexpr int gathering = 1 + producers; // who arrives where a stage is full, of which threads gather rows
    R ring;
    int warp, lane;
    uint32_t rows[most / 16]; // of the matrix, that this lane gathers
    int ahead[held];          // the warp's rows of the next tile: slot 4i+j is row 16i+4*warp+j

    __device__ __forceinline__ explicit Producer(const R &r) : ring(r) {
        int thread = threadIdx.x - consumers;
        warp = thread >> 5, lane = thread & 31;
    }

    // look_ahead has row i of the next tile be row index(i) of the matrix; rows past the last repeat it, and nobody reads their
    // results.
    template <class Index> __device__ __forceinline__ void look_ahead(int count, Index index) {
#pragma unroll
        for (int r = 0; r < held; r++) {
            int slot = r * 32 + lane, row = (slot >> 2) * 16 + 4 * warp + (slot & 3);
            ahead[r] = index(max(0, min(row, count - 1)));
        }
    }
    __device__ __forceinline__ void next_rows() {
#pragma unroll
        for (int i = 0; i < most / 16; i++) rows[i] = __shfl_sync(~0u, ahead[i / 8], i % 8 * 4 + (lane >> 3));
    }

    // copy_rows_of copies 64 terms of n rows, from term k on, to the stage; terms past the width are zeros. Every instruction here
    // counts: the products wait for what is asked for last.
    __device__ __forceinline__ void copy_rows_of(const bf16_t *matrix, uint32_t pitch, int n, int k, int width) const {
        int chunk = lane & 7, first = 4 * warp + (lane >> 3), column = k + chunk * 8;
        uint32_t to = ring.b() + first * row_bytes + ((chunk ^ (first & 7)) << 4), size = column < width ? 16 : 0;
        auto from = reinterpret_cast<uint64_t>(matrix + (size ? column : 0));
#pragma unroll
        for (int i = 0; i < most / 16; i++)
            ptx::copy16_if(i * 16 < n - first, to + i * 16 * row_bytes, ptx::multiply_add(rows[i], 2 * pitch, from), size);
    }

    // start waits for a stage to be free in every block of the cluster, and starts this block's part of the copies of the weights into
    // all of them: weights(to, full, c) is copy c. bytes are what else the copy engine will bring to this block's stage.
    template <class Weights> __device__ __forceinline__ void start(const R &at, int bytes, Weights weights) const {
        ptx::barrier_wait(at.empty(at.stage), at.phase ^ 1);
        __syncwarp(); // before one lane arrives for all
        if (warp == 0 && lane == 0) {
            uint32_t full = at.full(at.stage);
            ptx::barrier_expect(full, R::a_bytes + bytes);
            constexpr int each = R::copies / R::cluster;
            int first = at.rank() * each;
#pragma unroll
            for (int c = 0; c < each; c++) weights(at.a() + (first + c) * copy_bytes, full, first + c);
        }
    }

    // give leaves a stage to results, once it is free: it is full at once.
    __device__ __forceinline__ void give() {
        ptx::barrier_wait(ring.empty(ring.stage), ring.phase ^ 1);
        __syncwarp();
        if (lane == 0) ptx::barrier_arrive(ring.full(ring.stage));
        ring.next();
    }

    // gather fills the rest of a stage that was started, with the tile's rows.
    __device__ __forceinline__ void gather(const bf16_t *matrix, uint32_t pitch, int n, int k, int width) {
        copy_rows_of(matrix, pitch, n, k, width);
        ptx::copy_arrive(ring.full(ring.stage));
        ring.next();
    }

    // copy fills it from rows that follow one another, 16 at a time. The first copying warps take part in every stage, each by an arrival
    // where it is full; no other may wait for stages then, since it could be overtaken by a whole turn of the ring.
    static constexpr int copying = 2;
    __device__ __forceinline__ void copy(const TensorMap *matrix, int first, int n, int k) {
        if (warp == 1 && lane * 16 < n)
            ptx::tensor_copy2(ring.b() + lane * 16 * row_bytes, matrix, ring.full(ring.stage), k, first + lane * 16);
        if (warp == 1 && lane == 0) ptx::barrier_arrive(ring.full(ring.stage));
        __syncwarp();
        ring.next();
    }
    __device__ __forceinline__ void finish() const { ptx::copy_wait(); }
};
