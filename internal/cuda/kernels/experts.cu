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
    if constexpr (many_registers<R>) ptx::registers_down<56>();
}
template <class R> __device__ __forceinline__ void more_registers() {
    if constexpr (many_registers<R>) ptx::registers_up<224>();
}

// The maps of the weights (weights.go) order the rows of a copy so that a warp's of one follow those of another, where they can.
__device__ __forceinline__ bool gate_up_pairs(int width) { return width % 16 == 0; }
__device__ __forceinline__ bool down_pairs(int hidden) { return hidden % 32 == 0; }

template <class R, int step> __device__ __forceinline__ void gate_up(const GateUpParams &p) {
    constexpr int columns = 64 * R::copies; // of a block
    extern __shared__ char shared[];
    R ring(shared);
    ring.init(Producer<R>::gathering);
    int stages = (p.hidden + stage_terms - 1) / stage_terms;
    if (threadIdx.x >= consumers) {
        fewer_registers<R>();
        if (!p.ahead) ptx::wait_before();
        Producer<R> producer(ring);
        Walk<R> walk(ring, p.tiles, p.tile_count, p.blocks);
        auto look = [&](Tile t) { producer.look_ahead(t.rows, [&](int i) { return p.token[t.row + i]; }); };
        auto past = [&] { return walk.block() * columns >= (walk.tile.group == p.experts ? p.shared_width : p.width); };
        // The weights' rows by eights, of the expert; or by sixteens, of all experts.
        struct Weights {
            const TensorMap *map;
            int expert, at, further; // of the next copy
        };
        auto weights_here = [&] {
            bool is_shared = walk.tile.group == p.experts;
            Weights w{is_shared ? &p.shared : &p.routed, is_shared ? 0 : walk.tile.group, walk.block() * R::copies * 8, 8};
            if (gate_up_pairs(is_shared ? p.shared_width : p.width)) w = {w.map, 0, w.expert * (p.width / 16) + w.at / 2, 4};
            return w;
        };
        auto start = [&](const R &at, const Weights &w, int s) {
            producer.start(at, 0, [&](uint32_t to, uint32_t full, int c) {
                if constexpr (R::cluster > 1)
                    ptx::tensor_copy5(to, w.map, full, R::everyone, s * stage_terms, 0, 0, w.at + c * w.further, w.expert);
                else if constexpr (R::most <= 128) // an expert's rows are one tile, as a rule
                    ptx::tensor_copy5_once(to, w.map, full, s * stage_terms, 0, 0, w.at + c * w.further, w.expert);
                else
                    ptx::tensor_copy5(to, w.map, full, s * stage_terms, 0, 0, w.at + c * w.further, w.expert);
            });
        };
        int begun = 0;
        if (p.ahead && walk.more() && !past())
            for (R at = ring; begun < min(stages, R::stages); at.next()) start(at, weights_here(), begun++);
        ptx::wait_before();
        ptx::start_next();
        if (walk.more()) look(walk.tile);
        for (; walk.more(); walk.next()) {
            if (past()) {
                look(walk.ahead);
                continue;
            }
            Tile t = walk.tile;
            Weights weights = weights_here();
            int n = (t.rows + step - 1) / step * step;
            for (int s = 0; s < stages; s++) {
                if (s >= begun) start(producer.ring, weights, s);
                if (s == 0) producer.next_rows();
                producer.gather(p.x, p.x_pitch, n, s * stage_terms, p.hidden);
                if (s == 0) look(walk.ahead);
            }
            begun = 0;
        }
        producer.finish();
    } else {
        more_registers<R>();
        ptx::wait_before();
        ptx::start_next();
        Consumer<R> consumer(ring, R::cluster > 1);
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
            // Of a copy the warp has eight columns: gate in the first eight of its weight rows, up in the others.
            bool by_pairs = gate_up_pairs(width);
            int copy = consumer.group * R::copies, apart = by_pairs ? 8 : 32;
            int first = by_pairs ? copy / 2 * 64 + consumer.warp * 16 + copy % 2 * 8 : copy * 32 + consumer.warp * 8;
            first += walk.block() * columns;
            uint32_t staging = ring.staging(threadIdx.x >> 5);
            Rows<R, 1> rows(staging, consumer.lane, h, width, t.rows, first, apart, width);
            OpenPairs pairs(staging + 512, consumer.lane);
            static_assert(512 + OpenPairs::room * OpenPairs::bytes <= staging_bytes);
            auto stage = [&](const uint32_t (&h2)[4]) {
                __syncwarp();
                rows.stage(0, h2);
                __syncwarp();
            };
            // Where four values of a piece are, those of its j: the first token and the column of some lane.
            auto token_of = [&](int piece, int j, int lane) {
                return piece * consumer.piece_tokens + j % consumer.blocks * 8 + lane % 4 * 2;
            };
            auto column_of = [&](int j, int lane) { return first + j / consumer.blocks * apart + lane / 4; };
            uint32_t open = rows.whole ? 0 : (1u << consumer.pieces_of(t.rows)) - 1; // pieces that are not done
            if (rows.whole) {
                consumer.each_piece(acc, t.rows, [&](int piece, const float (&v)[16]) {
                    uint32_t h2[4], open_here = swiglu_near(v, h2);
                    if ((piece + 1) * consumer.piece_tokens > t.rows) { // what is past the last row is nobody's
#pragma unroll
                        for (int j = 0; j < 4; j++)
                            if (token_of(piece, j, consumer.lane) >= t.rows) open_here &= ~(1u << j);
                    }
                    stage(h2);
                    rows.store(piece);
                    if (__any_sync(~0u, open_here != 0) && !pairs.put(piece, v, open_here)) open |= 1u << piece;
                });
            }
            pairs.settle([&](int piece, int j, int lane, uint32_t h2) {
                int token = token_of(piece, j, lane), column = column_of(j, lane);
                if (column >= width) return;
                bf16_t *to = h + int64_t(token) * width + column;
                if (token < t.rows) to[0] = bf16_t(h2);
                if (token + 1 < t.rows) to[width] = bf16_t(h2 >> 16);
            });
            for (; open != 0; open &= open - 1) {
                int piece = __ffs(open) - 1;
                float v[16];
                uint32_t h2[4];
                consumer.pick(acc, piece, v);
                swiglu_exact(v, h2);
                stage(h2);
                rows.store_any(piece);
            }
            if (g == nullptr) continue;
            int token = token_of(0, 0, consumer.lane), column = column_of(0, consumer.lane);
            int64_t kept = int64_t(t.local + token) * width + column;
            consumer.each_piece(acc, t.rows, [&](int piece, const float (&v)[16]) {
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    int j = i / 2, more = token_of(piece, j, 0) + i % 2, beside = j / consumer.blocks * apart;
                    if (token + more >= t.rows || column + beside >= width) continue;
                    int64_t at = kept + int64_t(width) * more + beside;
                    g[at] = v[4 * j + i % 2], u[at] = v[4 * j + 2 + i % 2];
                }
            });
        }
    }
    ring.leave();
}

// The plan is older than the kernel before this one, which waited for it; so tiles and weights are read before waiting for h.
template <class R, int step> __device__ __forceinline__ void down_produce(const DownParams &p, const R &ring) {
    Producer<R> producer(ring);
    auto stages_of = [&](Tile t) { return ((t.group == p.experts ? p.shared_width : p.width) + stage_terms - 1) / stage_terms; };
    if (producer.warp >= producer.copying) {
        ptx::wait_before();
        ptx::start_next();
        if constexpr (R::leaves) {
            Walk<R> walk(ring, p.tiles, p.tile_count, p.blocks);
            Leaving<R>::store_all(walk, ring, producer.warp - producer.copying, &p.out_rows, p.out, p.hidden, stages_of);
        }
        return;
    }
    Walk<R> walk(ring, p.tiles, p.tile_count, p.blocks);
    auto start = [&](const R &at, int s) {
        Tile t = walk.tile;
        bool is_shared = t.group == p.experts;
        producer.start(at, (t.rows + 15) / 16 * 16 * row_bytes, [&](uint32_t to, uint32_t full, int c) {
            const TensorMap *map = is_shared ? &p.shared : &p.routed;
            int row = (walk.block() * R::copies + c) * copy_rows, expert = is_shared ? 0 : t.group;
            if (down_pairs(p.hidden)) expert = expert * (p.hidden / 32) + row / 32, row = 0; // by 32 rows, of all experts
            if constexpr (R::cluster > 1)
                ptx::tensor_copy4(to, map, full, R::everyone, s * stage_terms, row, expert, 0);
            else
                ptx::tensor_copy4(to, map, full, s * stage_terms, row, expert, 0);
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
        if constexpr (R::leaves)
            for (int g = 0; g < groups; g++) producer.give();
        begun = 0;
    }
}

template <class R, int step> __device__ __forceinline__ void down(const DownParams &p) {
    extern __shared__ char shared[];
    R ring(shared);
    ring.init(Producer<R>::copying);
    if (threadIdx.x >= consumers) {
        fewer_registers<R>();
        down_produce<R, step>(p, ring);
    } else {
        more_registers<R>();
        Consumer<R> consumer(ring);
        Walk<R> walk(ring, p.tiles, p.tile_count, p.blocks);
        float acc[R::copies * R::most / 2] = {};
        for (int tile = 0; walk.more(); walk.next(), tile++) {
            Tile t = walk.tile;
            int width = t.group == p.experts ? p.shared_width : p.width;
            consumer.template multiply_any<step>(acc, t.rows, (width + stage_terms - 1) / stage_terms);

            bool by_pairs = down_pairs(p.hidden);
            int copy = consumer.group * R::copies, warp = consumer.warp, apart = by_pairs ? 16 : 64;
            int first = by_pairs ? copy / 2 * 128 + warp * 32 + copy % 2 * 16 : copy * 64 + warp * 16; // as above, sixteen columns
            if constexpr (R::leaves) {
                Leaving<R>::put(consumer, tile, acc, t.rows, first % Leaving<R>::columns, apart);
            } else {
                first += walk.block() * R::copies * copy_rows;
                bf16_t *out = p.out + int64_t(t.row) * p.hidden;
                Rows<R, 2> rows(ring.staging(threadIdx.x >> 5), consumer.lane, out, p.hidden, t.rows, first, apart, p.hidden);
                auto stage = [&](const float (&v)[16]) {
                    uint32_t r[2][4];
                    round16(v, r);
                    __syncwarp();
                    rows.stage(0, r[0]), rows.stage(1, r[1]);
                    __syncwarp();
                };
                if (rows.whole) {
                    consumer.each_piece(acc, t.rows, [&](int piece, const float (&v)[16]) {
                        stage(v);
                        rows.store(piece);
                    });
                    continue;
                }
#pragma unroll 1
                for (int piece = 0; piece < consumer.pieces_of(t.rows); piece++) {
                    float v[16];
                    consumer.pick(acc, piece, v);
                    stage(v);
                    rows.store_any(piece);
                }
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
EXPERTS(2, 176, 8, 4, 1)
EXPERTS(2, 176, 8, 4, 2)
