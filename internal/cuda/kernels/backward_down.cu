// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The down projection backwards (R8): q = dy*Wd on the forward's pipeline, the SwiGLU's gradients, and the trees over q*h.

#include <type_traits>

#include "arith.cuh"
#include "backward.cuh"
#include "backward_product.cuh"

// Eight is what one thread has of a row: eight columns.
struct Eight {
    float v[8];
};

// load8 reads eight columns, of which left are inside the matrix: the rest is zero. whole: rows are multiples of 16 bytes.
template <bool whole> __device__ __forceinline__ void load8(Eight &d, const float *from, int left) {
    if (whole) {
        float4 a{}, b{};
        if (left > 0) a = reinterpret_cast<const float4 *>(from)[0], b = reinterpret_cast<const float4 *>(from)[1];
        d = Eight{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) d.v[i] = i < left ? from[i] : 0.f;
    }
}

// store8 writes them in BF16.
template <bool whole> __device__ __forceinline__ void store8(bf16_t *to, const Eight &d, int left) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; i++) words[i] = contract::round2(d.v[2 * i], d.v[2 * i + 1]);
    store_eight(to, make_uint4(words[0], words[1], words[2], words[3]), left, whole);
}

// SwigluGradient is R8 for eight columns of a row, before the casts.
struct SwigluGradient {
    Eight dg, du, hw;
    float sum; // the tree over q*h
};

// Columns past the width, of which left are not, count as -0 in the tree, which changes no sum.
__device__ __forceinline__ SwigluGradient swiglu_backward(const Eight &g, const Eight &u, const Eight &q, float w, int left) {
    Eight silu, s, term;
    bool easy = true;
#pragma unroll
    for (int i = 0; i < 8; i++) silu.v[i] = contract::silu_easy(g.v[i], s.v[i]), easy &= contract::silu_is_easy(g.v[i]);
    if (!easy) { // rare, and only this part again
#pragma unroll
        for (int i = 0; i < 8; i++) silu.v[i] = contract::silu(g.v[i]), s.v[i] = contract::sigmoid(g.v[i]);
    }
    SwigluGradient d;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float h = contract::from_bits(ptx::pack_bf16(0.f, __fmul_rn(silu.v[i], u.v[i]))); // a NaN is a NaN here
        float slope = __fmul_rn(s.v[i], __fadd_rn(1.f, __fmul_rn(g.v[i], __fsub_rn(1.f, s.v[i])))), dh = __fmul_rn(q.v[i], w);
        term.v[i] = __fmul_rn(q.v[i], h);
        d.hw.v[i] = __fmul_rn(h, w);
        d.dg.v[i] = __fmul_rn(__fmul_rn(dh, u.v[i]), slope);
        d.du.v[i] = __fmul_rn(dh, silu.v[i]);
    }
    if (left < 8) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i >= left) term.v[i] = -0.f;
    }
#pragma unroll
    for (int n = 1; n < 8; n *= 2) {
#pragma unroll
        for (int i = 0; i < 8; i += 2 * n) term.v[i] = __fadd_rn(term.v[i], term.v[i + n]);
    }
    d.sum = term.v[0];
    return d;
}

// A warpgroup's q go through shared memory, 16 tokens by 64 columns at a time, so that a thread has columns that lie next to one
// another; in two places in turn, also from tile to tile, so that one meeting of the warps between put and get is enough. The
// pitch has a warp's stores fall into different banks.
constexpr int q_pitch = 68, q_tokens = 16, q_bytes = 4 * q_tokens * q_pitch;

// put_q stores what a thread's accumulators have of 16 tokens by 64 columns.
__device__ __forceinline__ void put_q(uint32_t to, const float *acc, int warp, int lane) {
    to += 4 * (lane % 4 * 2 * q_pitch + warp * 16 + lane / 4);
#pragma unroll
    for (int i = 0; i < 8; i++) ptx::store_shared4(to + 4 * ((i / 4 * 8 + i % 2) * q_pitch + i % 4 / 2 * 8), acc[i]);
}

// put_piece stores one of the pieces from one to another: columns in turn, then tokens. None where it is past them.
template <class R, int from, int to> __device__ __forceinline__ void put_piece(uint32_t at, const float *acc, int piece, int warp, int lane) {
    if constexpr (to - from > 1) {
        constexpr int middle = (from + to) / 2;
        piece < middle ? put_piece<R, from, middle>(at, acc, piece, warp, lane) : put_piece<R, middle, to>(at, acc, piece, warp, lane);
    } else if (piece == from) {
        put_q(at, acc + (from % R::copies * R::most + from / R::copies * q_tokens) / 2, warp, lane);
    }
}

__device__ __forceinline__ void get_q(Eight &q, uint32_t from) {
    uint4 a = ptx::load_shared16(from), b = ptx::load_shared16(from + 16);
    uint32_t words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 8; i++) q.v[i] = contract::from_bits(words[i]);
}

// Work is what blocks take as they become free: a tile of an expert's rows by some columns, in the order of the experts. So those that share
// an expert's weights begin at about the same time, and most find them in the cache; with every so-many-th piece for each block, they
// drift apart, and weights come from memory three times.
struct Work {
    const Tile *tiles;
    int blocks, all;
    __device__ __forceinline__ explicit Work(const DownBackwardParams &p) : tiles(p.tiles), blocks(p.blocks), all(__ldcg(p.tile_count) * p.blocks) {}
    __device__ __forceinline__ bool is(int w) const { return w < all; }
    __device__ __forceinline__ Tile tile(int w) const {
        if (!is(w)) return Tile{0, 0, 0, 0};
        int4 v = __ldcg(reinterpret_cast<const int4 *>(tiles + w / blocks));
        return Tile{v.x, v.y, v.z, v.w};
    }
};

// Taken is where a block's warps tell one another what it has taken: with each stage its work, and what comes next; none is the last.
// Producers have two places by turns for what comes after that.
struct Taken {
    static constexpr int none = -1, barrier = 4; // a named one, of the producers
    uint32_t at;
    template <class R> __device__ __forceinline__ explicit Taken(const R &ring) : at(ring.behind() + groups * leaving_bytes) {}
    __device__ __forceinline__ uint32_t stage(int s) const { return at + 8 * s; }
    __device__ __forceinline__ uint32_t turn(int t) const { return at + 64 + 4 * t; }
};

template <class R, int step> __device__ __forceinline__ void down_backward_produce(const DownBackwardParams &p, const R &ring) {
    constexpr int columns = copy_rows * R::copies; // of a block
    if (!p.ahead) ptx::wait_before();
    Producer<R> producer(ring);
    Work all(p);
    Taken taken(ring);
    bool first_thread = producer.warp == 0 && producer.lane == 0;
    auto tell = [&](int work, int next) {
        ptx::barrier_wait(producer.ring.empty(producer.ring.stage), producer.ring.phase ^ 1);
        if (first_thread) ptx::store_shared8(taken.stage(producer.ring.stage), uint32_t(work), uint32_t(next));
    };
    auto look = [&](Tile t) { producer.look_ahead(t.rows, [&](int i) { return p.token[t.row + i]; }); };
    int stages = (p.hidden + stage_terms - 1) / stage_terms, work = blockIdx.x, next = work + gridDim.x;
    Tile t = all.tile(work), ahead = all.tile(next);
    auto first_column = [&] { return work % all.blocks * columns; };
    auto past = [&] { return first_column() >= (t.group == p.experts ? p.shared_width : p.width); };
    auto start = [&](const R &at, int s) {
        bool is_shared = t.group == p.experts;
        producer.start(at, 0, [&](uint32_t to, uint32_t full, int c) {
#pragma unroll
            for (int half = 0; half < 2; half++)
                ptx::tensor_copy3(to + half * (copy_bytes / 2), is_shared ? &p.shared : &p.routed, full, first_column() + c * copy_rows + half * 64,
                                  s * stage_terms, is_shared ? 0 : t.group);
        });
    };
    int begun = 0;
    if (p.ahead && all.is(work) && !past()) {
        tell(work, next); // before the stage can be full
        for (R at = ring; begun < min(stages, R::stages); at.next()) start(at, begun++);
    }
    ptx::wait_before();
    ptx::start_next();
    if (all.is(work)) look(t);
    for (int turn = 0; all.is(work); turn ^= 1) {
        int then = first_thread ? atomicAdd(p.taken, 1) : 0;
        int n = (t.rows + step - 1) / step * step;
        bool empty = past();
        if (empty) look(ahead);
        for (int s = 0; s < (empty ? 0 : stages); s++) {
            if (s == 0 && begun == 0) tell(work, next);
            if (s >= begun) start(producer.ring, s);
            if (s == 0) producer.next_rows();
            producer.gather(p.dy, p.dy_pitch, n, s * stage_terms, p.hidden);
            if (s == 0) look(ahead);
        }
        begun = 0;
        if (first_thread) ptx::store_shared4(taken.turn(turn), uint32_t(then));
        ptx::group_sync(Taken::barrier, producers);
        work = next, next = ptx::load_shared4(taken.turn(turn));
        t = ahead, ahead = all.tile(next);
    }
    tell(Taken::none, Taken::none);
    if (first_thread) ptx::barrier_arrive(producer.ring.full(producer.ring.stage));
    ptx::copy_arrive(producer.ring.full(producer.ring.stage));
    producer.finish();
}

// The down projection backwards, up to the gradients of gate and up: q = dy*Wd, and R8's SwiGLU.
template <class R, int step> __device__ __forceinline__ void down_backward(const DownBackwardParams &p) {
    constexpr int columns = copy_rows * R::copies, own = columns / 2; // of a block, and of a warpgroup
    extern __shared__ char shared[];
    R ring(shared);
    ring.init(Producer<R>::gathering);
    int stages = (p.hidden + stage_terms - 1) / stage_terms;
    if (threadIdx.x >= consumers) {
        ptx::registers_down<40>();
        down_backward_produce<R, step>(p, ring);
    } else {
        ptx::registers_up<232>();
        ptx::wait_before();
        ptx::start_next();
        TurnedConsumer<R, true> consumer(ring);
        Work all(p);
        Taken taken(ring);
        float acc[R::copies * R::most / 2] = {};
        constexpr int pieces = R::copies * R::most / q_tokens; // of a tile
        int thread = threadIdx.x & 127, token = thread / 8, chunk = thread % 8 * 8;
        uint32_t room = consumer.leaving(), turn = 0;
        static_assert(2 * q_bytes <= leaving_bytes);
        int work_ahead = Taken::none; // what ahead is of
        Tile ahead{0, 0, 0, 0};
        for (;;) {
            ptx::barrier_wait(consumer.ring.full(consumer.ring.stage), consumer.ring.phase);
            int work;
            uint32_t next;
            ptx::load_shared8(taken.stage(consumer.ring.stage), work, next);
            __syncwarp(); // whoever gives the stage back does so after all have read
            if (work == Taken::none) break;
            Tile t = work == work_ahead ? ahead : all.tile(work);
            work_ahead = int(next), ahead = all.tile(work_ahead);
            bool is_shared = t.group == p.experts;
            int width = is_shared ? p.shared_width : p.width, first = work % all.blocks * columns + consumer.group * own;
            // Tokens past the last repeat it, and nobody reads their results.
            auto row_of = [&](int piece) { return t.row + min(piece / R::copies * q_tokens + token, t.rows - 1); };
            int place = p.place[row_of(0)], next_place = p.place[row_of(1)];
            consumer.template multiply_any<step, 0>(acc, t.rows, stages, [](int) {});

            const float *g = is_shared ? p.shared_g : p.g, *u = is_shared ? p.shared_u : p.u;
            auto put = [&](int piece) { put_piece<R, 0, pieces>(room + turn, acc, piece, consumer.warp, consumer.lane); };
            // A loop, so that the instructions stay in their cache; what a piece reads is asked for or put there a piece ahead.
            auto leave = [&](auto is) {
                constexpr bool whole = decltype(is)::value;
                bf16_t *dg = is_shared ? p.shared_dg : p.dg, *du = is_shared ? p.shared_du : p.du, *hw = is_shared ? p.shared_hw : p.hw;
                Eight gs, us, next_g, next_u;
                auto load = [&](Eight &gs, Eight &us, int place, int piece) {
                    int column = first + piece % R::copies * 64 + chunk;
                    int64_t from = int64_t(place) * width + column;
                    load8<whole>(gs, g + from, width - column), load8<whole>(us, u + from, width - column);
                };
                load(gs, us, place, 0);
                put(0);
#pragma unroll 1
                for (int piece = 0; piece < pieces && piece / R::copies * q_tokens < t.rows; piece++) {
                    int at = piece / R::copies * q_tokens + token, column = first + piece % R::copies * 64 + chunk, left = width - column;
                    float weight = p.weight[row_of(piece)];
                    consumer.sync();
                    load(next_g, next_u, next_place, piece + 1);
                    next_place = p.place[row_of(piece + 2)];
                    Eight q;
                    get_q(q, room + turn + 4 * (token * q_pitch + chunk));
                    turn ^= q_bytes;
                    put(piece + 1);
                    SwigluGradient d = swiglu_backward(gs, us, q, weight, left);
                    gs = next_g, us = next_u;
#pragma unroll
                    for (int lane = 1; lane < 8; lane *= 2) d.sum = __fadd_rn(d.sum, __shfl_xor_sync(~0u, d.sum, lane));
                    if (at >= t.rows) continue;
                    int64_t to = int64_t(t.local + at) * width + column;
                    store8<whole>(dg + to, d.dg, left), store8<whole>(du + to, d.du, left), store8<whole>(hw + to, d.hw, left);
                    if (chunk == 0 && left > 0) p.partial[int64_t(t.row + at) * p.partials + column / 64] = d.sum;
                }
            };
            if (p.whole) leave(std::true_type{});
            else leave(std::false_type{});
        }
    }
}

// The trees over a row's columns, from the sums of 64: a thread for each row. Places past the last hold -0, which changes no sum, so
// every level has pairs.
extern "C" __global__ void __launch_bounds__(128) experts_tree_bwd_f32(const __grid_constant__ TreeParams p) {
    ptx::wait_before();
    ptx::start_next();
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= p.offsets[p.experts + 1]) return;
    int n = ((row < p.offsets[p.experts] ? p.width : p.shared_width) + 63) / 64;
    float *at = p.partial + int64_t(row) * p.partials;
    float sum;
    do {
        int until = (n + 31) / 32;
        for (int b = 0; b < until; b++) {
            float v[32];
#pragma unroll
            for (int i = 0; i < 32; i += 4) {
                float4 four = 32 * b + i < n ? *reinterpret_cast<const float4 *>(at + 32 * b + i) : float4{};
                v[i] = four.x, v[i + 1] = four.y, v[i + 2] = four.z, v[i + 3] = four.w;
            }
#pragma unroll
            for (int i = 0; i < 32; i++)
                if (32 * b + i >= n) v[i] = -0.f;
#pragma unroll
            for (int d = 1; d < 32; d *= 2) {
#pragma unroll
                for (int i = 0; i < 32; i += 2 * d) v[i] = __fadd_rn(v[i], v[i + d]);
            }
            sum = v[0];
            if (until > 1) at[b] = sum;
        }
        n = until;
    } while (n > 1);
    p.dweight[row] = sum;
}

// One kernel for each entry of the table in tiles_backward.go.
#define DOWN_BACKWARD(copies, most, step, stages, cluster)                                                                   \
    extern "C" __global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, 1)                                 \
        experts_down_bwd_##copies##x##most##x##cluster##_bf16(const __grid_constant__ DownBackwardParams p) {                \
        down_backward<Ring<copies, most, stages, cluster>, step>(p);                                                         \
    }
DOWN_BACKWARD(1, 64, 8, 8, 1)
DOWN_BACKWARD(2, 128, 16, 4, 1)
