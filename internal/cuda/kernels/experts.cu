// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The experts' products (R6). Blocks are persistent: each cluster takes every so-many-th piece of work, some tiles of an expert's
// rows by some of the expert's columns, in the order of the experts, so that an expert's weights are read once.

#include "product.cuh"
#include "swiglu.cuh"

// Walk is a block's pieces of work: tile by tile, the blocks of columns of one in turn. It reads a tile ahead; the first together
// with their number, since there is room for more tiles than blocks.
template <class R> struct Walk {
    const Tile *tiles;
    int blocks, w, step, work;
    Tile tile, ahead;

    __device__ __forceinline__ Walk(const R &ring, const Tile *all, const int *count, int columns)
        : tiles(all + ring.rank()), blocks(columns), w(blockIdx.x / R::cluster), step(gridDim.x / R::cluster) {
        tile = ahead = at(w);
        work = __ldcg(count) / R::cluster * blocks;
        look();
    }
    __device__ __forceinline__ Tile at(int w) const {
        int4 v = __ldcg(reinterpret_cast<const int4 *>(tiles + w / blocks * R::cluster));
        return Tile{v.x, v.y, v.z, v.w};
    }
    __device__ __forceinline__ bool more() const { return w < work; }
    __device__ __forceinline__ int block() const { return w % blocks; }
    __device__ __forceinline__ void look() {
        if (w + step < work) ahead = at(w + step);
    }
    __device__ __forceinline__ void next() {
        w += step;
        tile = ahead;
        look();
    }
};

// Registers move from the producers to the consumers where those hold many accumulators. There are as many in all as before.
template <class R> constexpr bool many_registers = R::copies * R::most > 128;
template <class R> __device__ __forceinline__ void fewer_registers() {
    if constexpr (many_registers<R>) ptx::registers_down<40>();
}
template <class R> __device__ __forceinline__ void more_registers() {
    if constexpr (many_registers<R>) ptx::registers_up<232>();
}

template <class R, int step> __device__ __forceinline__ void gate_up(const GateUpParams &p) {
    constexpr int columns = 64 * R::copies; // of a block
    extern __shared__ char shared[];
    R ring(shared);
    ring.init(true);
    ptx::wait_before();
    ptx::start_next();
    int stages = (p.hidden + stage_terms - 1) / stage_terms;
    if (threadIdx.x >= consumers) {
        fewer_registers<R>();
        Producer<R> producer(ring);
        Walk<R> walk(ring, p.tiles, p.tile_count, p.blocks);
        auto look = [&](Tile t) { producer.look_ahead(t.rows, [&](int i) { return p.token[t.row + i]; }); };
        if (walk.more()) look(walk.tile);
        for (; walk.more(); walk.next()) {
            Tile t = walk.tile;
            int block = walk.block(), n = (t.rows + step - 1) / step * step;
            bool is_shared = t.group == p.experts;
            const TensorMap *map = is_shared ? &p.shared : &p.routed;
            if (block * columns >= (is_shared ? p.shared_width : p.width)) {
                look(walk.ahead);
                continue;
            }
            for (int s = 0; s < stages; s++) {
                producer.start(producer.ring, 0, [&](uint32_t to, uint32_t full, int c) {
                    int row = (block * R::copies + c) * 8, expert = is_shared ? 0 : t.group;
                    if constexpr (R::cluster > 1)
                        ptx::tensor_copy5(to, map, full, R::everyone, s * stage_terms, 0, 0, row, expert);
                    else if constexpr (R::most <= 128) // an expert's rows are one tile, as a rule
                        ptx::tensor_copy5_once(to, map, full, s * stage_terms, 0, 0, row, expert);
                    else
                        ptx::tensor_copy5(to, map, full, s * stage_terms, 0, 0, row, expert);
                });
                if (s == 0) producer.next_rows();
                producer.gather(p.x, p.x_pitch, n, s * stage_terms, p.hidden);
                if (s == 0) look(walk.ahead);
            }
        }
        producer.finish();
    } else {
        more_registers<R>();
        Consumer<R> consumer(ring);
        Walk<R> walk(ring, p.tiles, p.tile_count, p.blocks);
        float acc[R::copies * R::most / 2] = {};
        for (; walk.more(); walk.next()) {
            Tile t = walk.tile;
            bool is_shared = t.group == p.experts;
            int width = is_shared ? p.shared_width : p.width;
            if (walk.block() * columns >= width) continue;
            consumer.template multiply_any<step>(acc, t.rows, stages);

            float *g = is_shared ? p.shared_g : p.g, *u = is_shared ? p.shared_u : p.u;
            bf16_t *h = (is_shared ? p.shared_h : p.h) + int64_t(t.local) * width;
            int first = walk.block() * columns + (consumer.group * R::copies * 4 + consumer.warp) * 8; // of the warp's columns
#pragma unroll 1
            for (int i = 0; i < (t.rows + 31) / 32 * R::copies; i++) {
                // 32 columns of the group: gate in the even eights of the weights' rows, up in the odd ones.
                int m = i % R::copies, c = i / R::copies * 32;
                float v[16];
                uint32_t h2[4];
                consumer.pick(acc, i, v);
                swiglu32(v, h2);
                __syncwarp();
                consumer.stage(0, h2);
                __syncwarp();
                consumer.template unload<1>(h + int64_t(c) * width, width, t.rows - c, first + m * 32, width);
                int column = first + m * 32 + consumer.lane / 4;
                if (g == nullptr || column >= width) continue;
#pragma unroll
                for (int j = 0; j < 16; j++) {
                    int token = c + j / 4 * 8 + consumer.lane % 4 * 2 + j % 2;
                    if (token < t.rows) (j % 4 < 2 ? g : u)[int64_t(t.local + token) * width + column] = v[j];
                }
            }
        }
    }
    ring.leave();
}

// The plan is older than the kernel before this one, which waited for it; so tiles and weights are read before waiting for h.
template <class R, int step> __device__ __forceinline__ void down_produce(const DownParams &p, const R &ring) {
    Producer<R> producer(ring);
    if (producer.warp >= producer.copying) {
        ptx::wait_before();
        ptx::start_next();
        return;
    }
    Walk<R> walk(ring, p.tiles, p.tile_count, p.blocks);
    auto stages_of = [&](Tile t) { return ((t.group == p.experts ? p.shared_width : p.width) + stage_terms - 1) / stage_terms; };
    auto start = [&](const R &at, int s) {
        Tile t = walk.tile;
        bool is_shared = t.group == p.experts;
        producer.start(at, (t.rows + 15) / 16 * 16 * row_bytes, [&](uint32_t to, uint32_t full, int c) {
            const TensorMap *map = is_shared ? &p.shared : &p.routed;
            int row = (walk.block() * R::copies + c) * copy_rows, expert = is_shared ? 0 : t.group;
            if constexpr (R::cluster > 1)
                ptx::tensor_copy3(to, map, full, R::everyone, s * stage_terms, row, expert);
            else
                ptx::tensor_copy3(to, map, full, s * stage_terms, row, expert);
        });
    };
    int begun = 0;
    if (walk.more())
        for (R at = ring; begun < min(stages_of(walk.tile), R::stages); at.next()) start(at, begun++);
    ptx::wait_before();
    ptx::fence_async_memory();
    ptx::start_next();
    for (; walk.more(); walk.next()) {
        Tile t = walk.tile;
        for (int s = 0; s < stages_of(t); s++) {
            if (s >= begun) start(producer.ring, s);
            producer.copy(t.group == p.experts ? &p.shared_rows : &p.routed_rows, t.local, t.rows, s * stage_terms);
        }
        begun = 0;
    }
}

template <class R, int step> __device__ __forceinline__ void down(const DownParams &p) {
    extern __shared__ char shared[];
    R ring(shared);
    ring.init(false);
    if (threadIdx.x >= consumers) {
        fewer_registers<R>();
        down_produce<R, step>(p, ring);
    } else {
        more_registers<R>();
        Consumer<R> consumer(ring);
        Walk<R> walk(ring, p.tiles, p.tile_count, p.blocks);
        float acc[R::copies * R::most / 2] = {};
        for (; walk.more(); walk.next()) {
            Tile t = walk.tile;
            int width = t.group == p.experts ? p.shared_width : p.width;
            consumer.template multiply_any<step>(acc, t.rows, (width + stage_terms - 1) / stage_terms);

            int first = ((walk.block() * 2 + consumer.group) * R::copies * 4 + consumer.warp) * 16; // of the warp's columns
#pragma unroll 1
            for (int i = 0; i < (t.rows + 31) / 32 * R::copies; i++) {
                int m = i % R::copies, c = i / R::copies * 32;
                float v[16];
                consumer.pick(acc, i, v);
                __syncwarp();
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    uint32_t r[4];
#pragma unroll
                    for (int j = 0; j < 4; j++) r[j] = contract::round2(v[4 * j + 2 * half], v[4 * j + 2 * half + 1]);
                    consumer.stage(half, r);
                }
                __syncwarp();
                consumer.template unload<2>(p.out + int64_t(t.row + c) * p.hidden, p.hidden, t.rows - c, first + m * 64, p.hidden);
            }
        }
    }
    ring.leave();
}

// The kernels of the table in tiles.go: copies of 128 rows of weights to a stage, the most tokens of a tile, the step of their number, the
// stages, and the blocks of a cluster.
#define EXPERTS(copies, most, step, stages, cluster)                                                                         \
    extern "C" __global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, 1)                                 \
        experts_gate_up_fwd_##copies##x##most##x##cluster##_bf16(const __grid_constant__ GateUpParams p) {                   \
        gate_up<Ring<copies, most, stages, cluster>, step>(p);                                                               \
    }                                                                                                                        \
    extern "C" __global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, 1)                                 \
        experts_down_fwd_##copies##x##most##x##cluster##_bf16(const __grid_constant__ DownParams p) {                        \
        down<Ring<copies, most, stages, cluster>, step>(p);                                                                  \
    }
EXPERTS(1, 64, 8, 8, 1)
EXPERTS(2, 128, 16, 4, 1)
EXPERTS(2, 176, 16, 4, 1)
EXPERTS(2, 176, 16, 4, 2)
