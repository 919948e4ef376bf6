// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The experts' products of the backward (R8, R9), on the forward's pipeline. What was an output of the weights is summed over
// here, so the weights are the turned operand of the matrix instruction, and no copy of them is made.

#include "arith.cuh"
#include "backward.cuh"
#include "product.cuh"

// Eight is what one thread has of a row: eight columns.
struct Eight {
    float v[8];
};

// load8 reads eight columns, of which left are inside the matrix: the rest is zero. whole: rows are multiples of 16 bytes.
__device__ __forceinline__ void load8(Eight &d, const float *from, int left, int whole) {
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
__device__ __forceinline__ void store8(bf16_t *to, const Eight &d, int left, int whole) {
    uint32_t words[4];
    bool number = true;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        words[i] = ptx::pack_bf16(d.v[2 * i], d.v[2 * i + 1]);
        number &= !__isnanf(d.v[2 * i]) & !__isnanf(d.v[2 * i + 1]);
    }
    if (!number) {
#pragma unroll
        for (int i = 0; i < 4; i++) words[i] = contract::round2(d.v[2 * i], d.v[2 * i + 1]);
    }
    if (whole) {
        if (left > 0) *reinterpret_cast<uint4 *>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < left) to[i] = bf16_t(words[i / 2] >> 16 * (i % 2));
    }
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
    if (!easy) {
#pragma unroll
        for (int i = 0; i < 8; i++) silu.v[i] = contract::silu(g.v[i]), s.v[i] = contract::sigmoid(g.v[i]);
    }
    SwigluGradient d;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float h = contract::bf16(ptx::pack_bf16(__fmul_rn(silu.v[i], u.v[i]), 0.f) & 0xFFFF); // a NaN is a NaN here
        float slope = __fmul_rn(s.v[i], __fadd_rn(1.f, __fmul_rn(g.v[i], __fsub_rn(1.f, s.v[i])))), dh = __fmul_rn(q.v[i], w);
        term.v[i] = i < left ? __fmul_rn(q.v[i], h) : -0.f;
        d.hw.v[i] = __fmul_rn(h, w);
        d.dg.v[i] = __fmul_rn(__fmul_rn(dh, u.v[i]), slope);
        d.du.v[i] = __fmul_rn(dh, silu.v[i]);
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
// another; in two places in turn, also from tile to tile, so that one meeting of the warps between put and get is enough. The pitch has a warp's stores fall into different banks.
constexpr int q_pitch = 68, q_tokens = 16, q_bytes = 4 * q_tokens * q_pitch;

// put stores what a thread's accumulators have of 16 tokens by 64 columns.
__device__ __forceinline__ void put_q(uint32_t to, const float *acc, int warp, int lane) {
    to += 4 * (lane % 4 * 2 * q_pitch + warp * 16 + lane / 4);
#pragma unroll
    for (int i = 0; i < 8; i++) ptx::store_shared4(to + 4 * ((i / 4 * 8 + i % 2) * q_pitch + i % 4 / 2 * 8), acc[i]);
}
__device__ __forceinline__ void get_q(Eight &q, uint32_t from) {
    uint4 a = ptx::load_shared16(from), b = ptx::load_shared16(from + 16);
    uint32_t words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 8; i++) q.v[i] = contract::from_bits(words[i]);
}

// part_of is one of the parts of a tile that is too large for a block: about equal, and a multiple of 16 but for the last.
__device__ __forceinline__ Tile part_of(Tile t, int part, int parts) {
    if (parts == 1) return t;
    int size = ((t.rows + parts - 1) / parts + 15) / 16 * 16, from = min(part * size, t.rows);
    return from < t.rows ? Tile{t.group, t.row + from, t.local + from, min(size, t.rows - from)} : Tile{t.group, t.row, t.local, 0};
}

// The down projection backwards, up to the gradients of gate and up: q = dy*Wd, and R8's SwiGLU.
template <class R, int step> __device__ __forceinline__ void down_backward(const DownBackwardParams &p) {
    constexpr int columns = copy_rows * R::copies, own = columns / 2; // of a block, and of a warpgroup
    extern __shared__ char shared[];
    R ring(shared);
    ring.init(true);
    ptx::wait_before();
    ptx::start_next();
    int stages = (p.hidden + stage_terms - 1) / stage_terms;
    if (threadIdx.x >= consumers) {
        ptx::registers_down<40>();
        Producer<R> producer(ring);
        Walk walk(p.tiles, p.tile_count, p.blocks * p.parts);
        auto look = [&](Tile all, int w) {
            Tile t = part_of(all, w % p.parts, p.parts);
            producer.look_ahead(t.rows, [&](int i) { return p.token[t.row + i]; });
        };
        if (walk.more()) look(walk.tile, walk.w);
        for (; walk.more(); walk.next()) {
            Tile t = part_of(walk.tile, walk.w % p.parts, p.parts);
            int n = (t.rows + step - 1) / step * step, first = walk.block() / p.parts * columns;
            bool is_shared = t.group == p.experts;
            if (t.rows == 0 || first >= (is_shared ? p.shared_width : p.width)) {
                look(walk.ahead, walk.w + gridDim.x);
                continue;
            }
            for (int s = 0; s < stages; s++) {
                producer.start(producer.ring, 0, [&](uint32_t to, uint32_t full, int c) {
#pragma unroll
                    for (int half = 0; half < 2; half++)
                        ptx::tensor_copy3(to + half * (copy_bytes / 2), is_shared ? &p.shared : &p.routed, full,
                                          first + c * copy_rows + half * 64, s * stage_terms, is_shared ? 0 : t.group);
                });
                if (s == 0) producer.next_rows();
                producer.gather(p.dy, p.dy_pitch, n, s * stage_terms, p.hidden);
                if (s > 0) continue;
                look(walk.ahead, walk.w + gridDim.x);
                // What the epilogue will read: a token's activations for each thread.
                for (int i = threadIdx.x - consumers; i < t.rows; i += producers) {
                    int64_t from = int64_t(p.place[t.row + i]) * (is_shared ? p.shared_width : p.width) + first;
                    for (int c = 0; c < columns && first + c < (is_shared ? p.shared_width : p.width); c += 32) {
                        ptx::prefetch((is_shared ? p.shared_g : p.g) + from + c);
                        ptx::prefetch((is_shared ? p.shared_u : p.u) + from + c);
                    }
                }
            }
        }
        producer.finish();
    } else {
        ptx::registers_up<232>();
        Consumer<R> consumer(ring);
        Walk walk(p.tiles, p.tile_count, p.blocks * p.parts);
        float acc[R::copies * R::most / 2] = {};
        constexpr int pieces = R::copies * R::most / q_tokens; // of a tile: columns in turn, then tokens
        int thread = threadIdx.x & 127, token = thread / 8, chunk = thread % 8 * 8;
        uint32_t room = ring.staging(consumer.group), turn = 0;
        for (; walk.more(); walk.next()) {
            Tile t = part_of(walk.tile, walk.w % p.parts, p.parts);
            bool is_shared = t.group == p.experts;
            int width = is_shared ? p.shared_width : p.width, first = walk.block() / p.parts * columns;
            if (t.rows == 0 || first >= width) continue;
            first += consumer.group * own;
            // Tokens past the last repeat it, and nobody reads their results.
            auto row_of = [&](int piece) { return t.row + min(piece / R::copies * q_tokens + token, t.rows - 1); };
            int place = p.place[row_of(0)], next_place = p.place[row_of(1)];
            consumer.template multiply_any<step, 1>(acc, t.rows, stages);

            const float *g = is_shared ? p.shared_g : p.g, *u = is_shared ? p.shared_u : p.u;
            Eight gs, us, next_g, next_u;
            auto load = [&](Eight &gs, Eight &us, int place, int piece) {
                int column = first + piece % R::copies * 64 + chunk;
                int64_t from = int64_t(place) * width + column;
                load8(gs, g + from, width - column, p.whole), load8(us, u + from, width - column, p.whole);
            };
            load(gs, us, place, 0);
            // A loop, so that the instructions stay in their cache; what it reads is asked for a piece ahead.
#pragma unroll 1
            for (int piece = 0; piece < pieces && piece / R::copies * q_tokens < t.rows; piece++) {
                int at = piece / R::copies * q_tokens + token, column = first + piece % R::copies * 64 + chunk, left = width - column;
                uint32_t here = room + (turn ^= q_bytes);
#pragma unroll
                for (int i = 0; i < pieces; i++)
                    if (i == piece) put_q(here, acc + (i % R::copies * R::most + i / R::copies * q_tokens) / 2, consumer.warp, consumer.lane);
                consumer.sync();
                load(next_g, next_u, next_place, piece + 1);
                next_place = p.place[row_of(piece + 2)];
                float weight = p.weight[row_of(piece)];
                Eight q;
                get_q(q, here + 4 * (token * q_pitch + chunk));
                SwigluGradient d = swiglu_backward(gs, us, q, weight, left);
                gs = next_g, us = next_u;
#pragma unroll
                for (int lane = 1; lane < 8; lane *= 2) d.sum = __fadd_rn(d.sum, __shfl_xor_sync(~0u, d.sum, lane));
                if (at < t.rows) {
                    int64_t to = int64_t(t.local + at) * width + column;
                    store8((is_shared ? p.shared_dg : p.dg) + to, d.dg, left, p.whole);
                    store8((is_shared ? p.shared_du : p.du) + to, d.du, left, p.whole);
                    store8((is_shared ? p.shared_hw : p.hw) + to, d.hw, left, p.whole);
                    if (chunk == 0 && left > 0) p.partial[int64_t(t.row + at) * p.partials + column / 64] = d.sum;
                }
            }
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

// Gate and up backwards, a row's part of dx (R9): [dg|du] times [Wg;Wu]. In a part the terms are the columns of one of the two.
template <class R, int step> __device__ __forceinline__ void gate_up_backward(const GateUpBackwardParams &p) {
    extern __shared__ char shared[];
    R ring(shared);
    ring.init(false);
    auto stages_of = [&](bool is_shared) { return ((is_shared ? p.shared_width : p.width) + stage_terms - 1) / stage_terms; };
    ptx::wait_before();
    ptx::start_next();
    if (threadIdx.x >= consumers) {
        ptx::registers_down<24>();
        Producer<R> producer(ring);
        if (producer.warp >= producer.copying) return; // as in down
        ptx::fence_async_memory();
        for (Walk walk(p.tiles, p.tile_count, p.blocks); walk.more(); walk.next()) {
            Tile t = walk.tile;
            bool is_shared = t.group == p.experts;
            const TensorMap *rows = is_shared ? p.shared_rows : p.routed_rows;
            for (int part = 0; part < (is_shared ? p.shared_parts : p.parts); part++) {
                for (int s = 0; s < stages_of(is_shared); s++) {
                    producer.start(producer.ring, (t.rows + 15) / 16 * 16 * row_bytes, [&](uint32_t to, uint32_t full, int c) {
#pragma unroll
                        for (int half = 0; half < 2; half++)
                            ptx::tensor_copy4(to + half * (copy_bytes / 2), is_shared ? &p.shared : &p.routed, full,
                                              (walk.block() * R::copies + c) * copy_rows + half * 64, s * stage_terms,
                                              is_shared ? 0 : t.group, part);
                    });
                    producer.copy(rows + part, t.local, t.rows, s * stage_terms);
                }
            }
        }
    } else {
        ptx::registers_up<240>();
        Consumer<R> consumer(ring);
        float acc[R::copies * R::most / 2] = {};
        for (Walk walk(p.tiles, p.tile_count, p.blocks); walk.more(); walk.next()) {
            Tile t = walk.tile;
            bool is_shared = t.group == p.experts;
            consumer.template multiply_any<step, 1>(acc, t.rows, stages_of(is_shared) * (is_shared ? p.shared_parts : p.parts));

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

// cast packs two, and says whether both are numbers.
__device__ __forceinline__ bool cast(uint32_t &v, float lo, float hi) {
    v = ptx::pack_bf16(lo, hi);
    return !__isnanf(lo) & !__isnanf(hi);
}

// Around is a consumer that does other work, in pieces, while the first stages of a product run.
template <class R> struct Around : Consumer<R> {
    using Consumer<R>::ring;
    __device__ __forceinline__ explicit Around(const R &r) : Consumer<R>(r) {}

    template <int n> __device__ __forceinline__ void ask(float *acc, int s) {
        ptx::barrier_wait(ring.full(ring.stage), ring.phase);
        uint64_t a = ptx::wgmma_tile(ring.a() + this->group * (R::a_bytes / 2)), b = ptx::wgmma_tile(ring.b());
        ptx::wgmma_fence();
#pragma unroll
        for (int k = 0; k < stage_terms / 16; k++) {
#pragma unroll
            for (int m = 0; m < R::copies; m++)
                wgmma<n, 1>::step(acc + m * (R::most / 2), a + m * (64 * row_bytes >> 4) + (16 * row_bytes >> 4) * k, b + 2 * k, s + k);
        }
        ptx::wgmma_commit();
    }
    template <int n, int pieces, class Piece> __device__ __forceinline__ void multiply_around(float *acc, int stages, Piece piece) {
        int before = 0;
        auto past = [&](int s) {
            ptx::wgmma_wait<1>();
            if (s > 0) this->release(before);
            before = ring.stage;
            ring.next();
        };
        if (stages < pieces) {
#pragma unroll
            for (int i = 0; i < pieces; i++) piece(i);
        }
        int s = 0;
        if (stages >= pieces) {
#pragma unroll
            for (int i = 0; i < pieces; i++) {
                ask<n>(acc, i);
                piece(i);
                past(i);
            }
            s = pieces;
        }
        for (; s < stages; s++) {
            ask<n>(acc, s);
            past(s);
        }
        ptx::wgmma_wait<0>();
        this->release(before);
    }
    template <int step, int pieces, int n = step, class Piece>
    __device__ __forceinline__ void multiply_around_any(float *acc, int tokens, int stages, Piece piece) {
        if constexpr (n < R::most) {
            if (tokens > n) return multiply_around_any<step, pieces, n + step>(acc, tokens, stages, piece);
        }
        multiply_around<n, pieces>(acc, stages, piece);
    }
};

template <class R, int step> __device__ __forceinline__ void gate_up_backward_around(const GateUpBackwardParams &p) {
    extern __shared__ char shared[];
    R ring(shared);
    ring.init(false);
    auto stages_of = [&](bool is_shared) { return ((is_shared ? p.shared_width : p.width) + stage_terms - 1) / stage_terms; };
    ptx::wait_before();
    ptx::start_next();
    if (threadIdx.x >= consumers) {
        ptx::registers_down<40>();
        Producer<R> producer(ring);
        if (producer.warp >= producer.copying) return; // as in down
        ptx::fence_async_memory();
        for (Walk walk(p.tiles, p.tile_count, p.blocks); walk.more(); walk.next()) {
            Tile t = walk.tile;
            bool is_shared = t.group == p.experts;
            const TensorMap *rows = is_shared ? p.shared_rows : p.routed_rows;
            for (int part = 0; part < (is_shared ? p.shared_parts : p.parts); part++) {
                for (int s = 0; s < stages_of(is_shared); s++) {
                    producer.start(producer.ring, (t.rows + 15) / 16 * 16 * row_bytes, [&](uint32_t to, uint32_t full, int c) {
#pragma unroll
                        for (int half = 0; half < 2; half++)
                            ptx::tensor_copy4(to + half * (copy_bytes / 2), is_shared ? &p.shared : &p.routed, full,
                                              (walk.block() * R::copies + c) * copy_rows + half * 64, s * stage_terms,
                                              is_shared ? 0 : t.group, part);
                    });
                    producer.copy(rows + part, t.local, t.rows, s * stage_terms);
                }
            }
        }
    } else {
        ptx::registers_up<232>();
        Around<R> consumer(ring);
        float acc[R::copies * R::most / 2] = {};
        uint32_t packed[R::copies * R::most / 4] = {}; // the last tile's results
        Tile last{0, 0, 0, 0};
        int last_first = 0;
        constexpr int pieces = R::most / R::staging_rows * R::copies;
        auto piece = [&](int i) {
            int c = i / R::copies * R::staging_rows, m = i % R::copies;
            if (c >= last.rows) return;
            consumer.sync();
#pragma unroll
            for (int half = c; half < c + R::staging_rows; half += 32) {
                if (half >= last.rows) break;
                const uint32_t *v = packed + (m * R::most + half) / 4;
                uint32_t to = consumer.staged(2 * consumer.warp) + (half - c) * staging_pitch;
                ptx::store_transposed4(to, v[0], v[2], v[4], v[6]);
                ptx::store_transposed4(to + 16, v[1], v[3], v[5], v[7]);
            }
            consumer.sync();
            consumer.template unload<64>(p.out + int64_t(last.row + c) * p.hidden, p.hidden, min(R::staging_rows, last.rows - c), last_first + m * 64,
                                         p.hidden);
        };
        for (Walk walk(p.tiles, p.tile_count, p.blocks); walk.more(); walk.next()) {
            Tile t = walk.tile;
            bool is_shared = t.group == p.experts;
            consumer.template multiply_around_any<step, pieces>(acc, t.rows, stages_of(is_shared) * (is_shared ? p.shared_parts : p.parts), piece);
            last = t, last_first = (walk.block() * 2 + consumer.group) * R::copies * 64;
#pragma unroll
            for (int i = 0; i < R::copies * R::most / 4; i += 8) {
                bool number = true;
#pragma unroll
                for (int j = i; j < i + 8; j++) number &= cast(packed[j], acc[2 * j], acc[2 * j + 1]);
                if (!number) {
#pragma unroll
                    for (int j = i; j < i + 8; j++) packed[j] = contract::round2(acc[2 * j], acc[2 * j + 1]);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < pieces; i++) piece(i);
    }
}
extern "C" __global__ void __launch_bounds__(threads, 1) experts_gate_up_bwd_around_bf16(const __grid_constant__ GateUpBackwardParams p) {
    gate_up_backward_around<Ring<2, 128, 4, 64>, 16>(p);
}
extern "C" __global__ void __launch_bounds__(threads, 1) experts_gate_up_bwd_2x192_bf16(const __grid_constant__ GateUpBackwardParams p) {
    gate_up_backward<Ring<2, 192, 3, 64>, 16>(p);
}
extern "C" __global__ void __launch_bounds__(threads, 1) experts_gate_up_bwd_around1_bf16(const __grid_constant__ GateUpBackwardParams p) {
    gate_up_backward_around<Ring<1, 64, 8, 64>, 8>(p);
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
#define EXPERTS_BACKWARD(copies, most, step, stages)                                                                         \
    extern "C" __global__ void __launch_bounds__(threads, 1)                                                                 \
        experts_down_bwd_##copies##x##most##_bf16(const __grid_constant__ DownBackwardParams p) {                            \
        down_backward<Ring<copies, most, stages, 64>, step>(p);                                                              \
    }                                                                                                                        \
    extern "C" __global__ void __launch_bounds__(threads, 1)                                                                 \
        experts_gate_up_bwd_##copies##x##most##_bf16(const __grid_constant__ GateUpBackwardParams p) {                       \
        gate_up_backward<Ring<copies, most, stages, 64>, step>(p);                                                           \
    }
EXPERTS_BACKWARD(1, 64, 8, 8)
EXPERTS_BACKWARD(2, 128, 16, 4)
