// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The experts' products (R6). Blocks are persistent: each takes every gridDim.x-th piece of work, a tile of an expert's rows by
// some of the expert's columns, in the order of the experts, so that an expert's weights are read once.

#include "arith.cuh"
#include "product.cuh"

// h_of gives the SwiGLU of two tokens, packed; ordinary gates take no branch.
__device__ __forceinline__ uint32_t swiglu2_easy(float g0, float g1, float u0, float u1) {
    return ptx::pack_bf16(__fmul_rn(contract::silu_easy(g0), u0), __fmul_rn(contract::silu_easy(g1), u1));
}
__device__ __forceinline__ uint32_t swiglu2(float g0, float g1, float u0, float u1) {
    return contract::round2(__fmul_rn(contract::silu(g0), u0), __fmul_rn(contract::silu(g1), u1));
}

// swiglu32 makes h of 32 tokens' accumulators: of two tokens in each of h's places.
__device__ __forceinline__ void swiglu32(const float *acc, uint32_t (&h)[4]) {
    bool easy = true;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float *v = acc + 4 * j;
        // An u that is infinite or NaN could make a NaN of a zero, so only finite ones are easy.
        easy &= contract::silu_is_easy(v[0]) & contract::silu_is_easy(v[1]) & (fabsf(v[2]) < contract::infinity()) &
                (fabsf(v[3]) < contract::infinity());
        h[j] = swiglu2_easy(v[0], v[1], v[2], v[3]);
    }
    if (__all_sync(~0u, easy)) return;
#pragma unroll
    for (int j = 0; j < 4; j++) h[j] = swiglu2(acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]);
}

// Walk is a block's pieces of work: tile by tile, the blocks of columns of one in turn. It reads a tile ahead; the first together
// with their number, since there is room for more tiles than blocks.
struct Walk {
    const Tile *tiles;
    int blocks, w, work;
    Tile tile, ahead;

    __device__ __forceinline__ Walk(const Tile *all, const int *count, int columns) : tiles(all), blocks(columns), w(blockIdx.x) {
        tile = ahead = at(w);
        work = __ldcg(count) * blocks;
        look();
    }
    __device__ __forceinline__ Tile at(int w) const {
        int4 v = __ldcg(reinterpret_cast<const int4 *>(tiles + w / blocks));
        return Tile{v.x, v.y, v.z, v.w};
    }
    __device__ __forceinline__ bool more() const { return w < work; }
    __device__ __forceinline__ int block() const { return w % blocks; }
    __device__ __forceinline__ void look() {
        if (w + int(gridDim.x) < work) ahead = at(w + gridDim.x);
    }
    __device__ __forceinline__ void next() {
        w += gridDim.x;
        tile = ahead;
        look();
    }
};

// Registers move from the producers to the consumers where those hold many accumulators.
template <class R> __device__ __forceinline__ void fewer_registers() {
    if constexpr (R::copies * R::most > 128) ptx::registers_down<40>();
}
template <class R> __device__ __forceinline__ void more_registers() {
    if constexpr (R::copies * R::most > 128) ptx::registers_up<232>();
}

template <class R, int step> __device__ __forceinline__ void gate_up(const GateUpParams &p) {
    constexpr int columns = 64 * R::copies, own = columns / 2; // of a block, and of a warpgroup
    extern __shared__ char shared[];
    R ring(shared);
    ring.init(true);
    ptx::wait_before();
    ptx::start_next();
    int stages = (p.hidden + stage_terms - 1) / stage_terms;
    if (threadIdx.x >= consumers) {
        fewer_registers<R>();
        Producer<R> producer(ring);
        Walk walk(p.tiles, p.tile_count, p.blocks);
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
                    ptx::tensor_copy5(to, map, full, s * stage_terms, 0, 0, (block * R::copies + c) * 8, is_shared ? 0 : t.group);
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
        Walk walk(p.tiles, p.tile_count, p.blocks);
        float acc[R::copies * R::most / 2] = {};
        for (; walk.more(); walk.next()) {
            Tile t = walk.tile;
            bool is_shared = t.group == p.experts;
            int width = is_shared ? p.shared_width : p.width, first = walk.block() * columns + consumer.group * own;
            if (walk.block() * columns >= width) continue;
            consumer.template multiply_any<step>(acc, t.rows, stages);

            float *g = is_shared ? p.shared_g : p.g, *u = is_shared ? p.shared_u : p.u;
            bf16_t *h = (is_shared ? p.shared_h : p.h) + int64_t(t.local) * width;
#pragma unroll
            for (int c = 0; c < R::most; c += R::staging_rows) {
                if (c >= t.rows) break;
                consumer.sync();
#pragma unroll
                for (int half = c; half < c + R::staging_rows; half += 32) {
                    if (half >= t.rows) break;
#pragma unroll
                    for (int m = 0; m < R::copies; m++) { // 32 columns: gate in the even eights of the weights' rows, up in the odd ones
                        const float *v = acc + (m * R::most + half) / 2;
                        uint32_t h2[4];
                        swiglu32(v, h2);
                        ptx::store_transposed4(consumer.staged(4 * m + consumer.warp) + (half - c) * staging_pitch, h2[0], h2[1], h2[2], h2[3]);
                        int column = first + m * 32 + consumer.warp * 8 + consumer.lane / 4;
                        if (g != nullptr && column < width) {
#pragma unroll
                            for (int i = 0; i < 16; i++) {
                                int token = half + i / 4 * 8 + consumer.lane % 4 * 2 + i % 2;
                                if (token < t.rows) (i % 4 < 2 ? g : u)[int64_t(t.local + token) * width + column] = v[i];
                            }
                        }
                    }
                }
                consumer.sync();
                consumer.template unload<own>(h + int64_t(c) * width, width, min(R::staging_rows, t.rows - c), first, width);
            }
        }
    }
}

// stage_down makes rows of 32 tokens by the warp's 16 columns, and stages them.
__device__ __forceinline__ void stage_down(const float *v, uint32_t to) {
#pragma unroll
    for (int eight = 0; eight < 2; eight++) { // the warp's first eight columns, then its next
        uint32_t r[4];
        bool number = true;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float lo = v[4 * j + 2 * eight], hi = v[4 * j + 2 * eight + 1];
            number &= !__isnanf(lo) & !__isnanf(hi);
            r[j] = ptx::pack_bf16(lo, hi);
        }
        if (!number) {
#pragma unroll
            for (int j = 0; j < 4; j++) r[j] = contract::round2(v[4 * j + 2 * eight], v[4 * j + 2 * eight + 1]);
        }
        __syncwarp();
        ptx::store_transposed4(to + eight * 16, r[0], r[1], r[2], r[3]);
    }
}

// The plan is older than the kernel before this one, which waited for it; so tiles and weights are read before waiting for h.
template <class R, int step> __device__ __forceinline__ void down(const DownParams &p) {
    extern __shared__ char shared[];
    R ring(shared);
    ring.init(false);
    if (threadIdx.x >= consumers) {
        fewer_registers<R>();
        Producer<R> producer(ring);
        if (producer.warp >= producer.copying) { // one that only looked on could be overtaken by a whole turn of the ring, and wait for ever
            ptx::wait_before();
            ptx::start_next();
            return;
        }
        Walk walk(p.tiles, p.tile_count, p.blocks);
        auto stages_of = [&](Tile t) { return ((t.group == p.experts ? p.shared_width : p.width) + stage_terms - 1) / stage_terms; };
        auto start = [&](const R &at, int s) {
            Tile t = walk.tile;
            bool is_shared = t.group == p.experts;
            producer.start(at, (t.rows + 15) / 16 * 16 * row_bytes, [&](uint32_t to, uint32_t full, int c) {
                ptx::tensor_copy3(to, is_shared ? &p.shared : &p.routed, full, s * stage_terms, (walk.block() * R::copies + c) * copy_rows,
                                  is_shared ? 0 : t.group);
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
    } else {
        more_registers<R>();
        Consumer<R> consumer(ring);
        Walk walk(p.tiles, p.tile_count, p.blocks);
        float acc[R::copies * R::most / 2] = {};
        for (; walk.more(); walk.next()) {
            Tile t = walk.tile;
            int width = t.group == p.experts ? p.shared_width : p.width;
            consumer.template multiply_any<step>(acc, t.rows, (width + stage_terms - 1) / stage_terms);

            int first = (walk.block() * 2 + consumer.group) * R::copies * 64;
#pragma unroll
            for (int c = 0; c < R::most; c += R::staging_rows) {
                if (c >= t.rows) break;
#pragma unroll
                for (int m = 0; m < R::copies; m++) {
                    consumer.sync();
#pragma unroll
                    for (int half = c; half < c + R::staging_rows; half += 32) {
                        if (half >= t.rows) break;
                        stage_down(acc + (m * R::most + half) / 2, consumer.staged(2 * consumer.warp) + (half - c) * staging_pitch);
                    }
                    consumer.sync();
                    consumer.template unload<64>(p.out + int64_t(t.row + c) * p.hidden, p.hidden, min(R::staging_rows, t.rows - c), first + m * 64,
                                                 p.hidden);
                }
            }
        }
    }
}

// One kernel for each entry of the table in tiles.go: copies of 128 rows of weights to a stage, the most tokens of a tile, the step
// of their number, the stages, and the tokens staged at a time.
#define EXPERTS(copies, most, step, stages, staged)                                                                          \
    extern "C" __global__ void __launch_bounds__(threads, 1)                                                                 \
        experts_gate_up_fwd_##copies##x##most##_bf16(const __grid_constant__ GateUpParams p) {                               \
        gate_up<Ring<copies, most, stages, staged>, step>(p);                                                                \
    }                                                                                                                        \
    extern "C" __global__ void __launch_bounds__(threads, 1)                                                                 \
        experts_down_fwd_##copies##x##most##_bf16(const __grid_constant__ DownParams p) {                                    \
        down<Ring<copies, most, stages, staged>, step>(p);                                                                   \
    }
EXPERTS(1, 64, 8, 8, 64)
EXPERTS(2, 128, 16, 4, 64)
