// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Gate and up backwards, a row's part of dx (R9): [dg|du] times [Wg;Wu], on the forward's pipeline. In a part the terms are the columns of
// one of the two. A tile's results are rounded, and leave while the next tile's first products run.

#include "arith.cuh"
#include "backward.cuh"
#include "backward_product.cuh"

// The stages of a part, and of all of a tile.
__device__ __forceinline__ int part_stages(const GateUpBackwardParams &p, Tile t) {
    return ((t.group == p.experts ? p.shared_width : p.width) + stage_terms - 1) / stage_terms;
}
__device__ __forceinline__ int parts_of(const GateUpBackwardParams &p, Tile t) { return t.group == p.experts ? p.shared_parts : p.parts; }
__device__ __forceinline__ int stages_of(const GateUpBackwardParams &p, Tile t) { return part_stages(p, t) * parts_of(p, t); }

template <class R> __device__ __forceinline__ void gate_up_backward_produce(const GateUpBackwardParams &p, const R &ring) {
    if (!p.ahead) ptx::wait_before();
    Producer<R> producer(ring);
    Walk<R> walk(ring, p.tiles, p.tile_count, p.blocks);
    if (producer.warp >= producer.copying) { // as in down
        ptx::wait_before();
        ptx::start_next();
        if constexpr (R::leaves) {
            int group = producer.warp - producer.copying;
            Leaving<R>::store_all(walk, ring, group, &p.out_rows, p.out, p.hidden, [&](Tile t) { return stages_of(p, t); });
        }
        return;
    }
    auto start = [&](const R &at, int part, int s) {
        Tile t = walk.tile;
        const TensorMap *weights = t.group == p.experts ? &p.shared : &p.routed;
        int expert = t.group == p.experts ? 0 : t.group;
        producer.start(at, (t.rows + 15) / 16 * 16 * row_bytes, [&](uint32_t to, uint32_t full, int c) {
#pragma unroll
            for (int half = 0; half < 2; half++, to += copy_bytes / 2) {
                int column = (walk.block() * R::copies + c) * copy_rows + half * 64;
                if constexpr (R::cluster > 1)
                    ptx::tensor_copy4(to, weights, full, R::everyone, column, s * stage_terms, expert, part);
                else
                    ptx::tensor_copy4(to, weights, full, column, s * stage_terms, expert, part);
            }
        });
    };
    int begun = 0; // stages of the first part
    if (p.ahead && walk.more())
        for (R at = ring; begun < min(part_stages(p, walk.tile), R::stages); at.next()) start(at, 0, begun++);
    ptx::wait_before();
    ptx::fence_async_memory();
    ptx::start_next();
    for (; walk.more(); walk.next()) {
        Tile t = walk.tile;
        const TensorMap *rows = t.group == p.experts ? p.shared_rows : p.routed_rows;
        for (int part = 0; part < parts_of(p, t); part++) {
            for (int s = 0; s < part_stages(p, t); s++) {
                if (s >= begun) start(producer.ring, part, s);
                producer.copy(rows + part, t.local, t.rows, s * stage_terms);
            }
            begun = 0;
        }
        if constexpr (R::leaves)
            for (int g = 0; g < groups; g++) producer.give();
    }
}

template <class R, int step> __device__ __forceinline__ void gate_up_backward(const GateUpBackwardParams &p) {
    extern __shared__ char shared[];
    R ring(shared);
    ring.init(Producer<R>::copying);
    if (threadIdx.x >= consumers) {
        ptx::registers_down<40>();
        gate_up_backward_produce(p, ring);
    } else {
        ptx::registers_up<232>();
        ptx::wait_before();
        ptx::start_next();
        TurnedConsumer<R, false> consumer(ring);
        Walk<R> walk(ring, p.tiles, p.tile_count, p.blocks);
        float acc[R::copies * R::most / 2] = {};
        if constexpr (R::leaves) {
            for (int tile = 0; walk.more(); walk.next(), tile++) {
                consumer.template multiply_any<step, 0>(acc, walk.tile.rows, stages_of(p, walk.tile), [](int) {});
                Leaving<R>::put(consumer, tile, acc, walk.tile.rows, consumer.warp * 16, 64);
            }
        } else {
            uint32_t packed[R::copies * R::most / 4] = {}; // the last tile's results
            Tile last{0, 0, 0, 0};
            int last_first = 0;
            constexpr int pieces = R::most / leaving_tokens * R::copies;
            auto piece = [&](int i) {
                int c = i / R::copies * leaving_tokens, m = i % R::copies;
                if (c >= last.rows) return;
                consumer.sync();
#pragma unroll
                for (int half = c; half < c + leaving_tokens; half += 32)
                    if (half < last.rows) consumer.stage(half - c, packed + (m * R::most + half) / 4);
                consumer.sync();
                consumer.unload(p.out + int64_t(last.row + c) * p.hidden, p.hidden, min(leaving_tokens, last.rows - c), last_first + m * 64, p.hidden);
            };
            for (; walk.more(); walk.next()) {
                Tile t = walk.tile;
                consumer.template multiply_any<step, pieces>(acc, t.rows, stages_of(p, t), piece);
                last = t, last_first = (walk.block() * groups + consumer.group) * R::copies * 64;
#pragma unroll
                for (int i = 0; i < R::copies * R::most / 4; i++) packed[i] = contract::round2(acc[2 * i], acc[2 * i + 1]);
            }
#pragma unroll
            for (int i = 0; i < pieces; i++) piece(i);
        }
    }
    ring.leave();
}

// join puts two rows behind one another, and zeros up to the pitch: where a width is no multiple of 16, the second part's terms
// go on in the middle of a group of 16 (R1).
extern "C" __global__ void __launch_bounds__(256) experts_join_bf16(const __grid_constant__ JoinParams p) {
    ptx::wait_before();
    ptx::start_next();
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < p.rows * p.pitch; i += int64_t(gridDim.x) * blockDim.x) {
        int64_t row = i / p.pitch;
        int column = int(i % p.pitch);
        const bf16_t *from = column < p.columns ? p.first + column : p.second + column - p.columns;
        p.to[i] = column < 2 * p.columns ? from[row * p.columns] : bf16_t(0);
    }
}

// One kernel for each entry of the table in tiles_backward.go.
#define GATE_UP_BACKWARD(copies, most, step, stages, cluster)                                                                \
    extern "C" __global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, 1)                                 \
        experts_gate_up_bwd_##copies##x##most##x##cluster##_bf16(const __grid_constant__ GateUpBackwardParams p) {           \
        gate_up_backward<Ring<copies, most, stages, cluster>, step>(p);                                                      \
    }
GATE_UP_BACKWARD(2, 64, 8, 5, 1)
GATE_UP_BACKWARD(2, 128, 16, 4, 1)
GATE_UP_BACKWARD(2, 176, 8, 4, 2)
