// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The experts' products of the backward (R8, R9), on the forward's pipeline. What was an output of the weights is summed over
// here, so the weights are the turned operand of the matrix instruction, and no copy of them is made.

#include "arith.cuh"
#include "backward.cuh"
#include "product.cuh"

// SwigluGradient is R8 for a row's column, before the casts: from silu(g) and s = sigmoid(g).
struct SwigluGradient {
    float dg, du, hw, term;
};

__device__ __forceinline__ SwigluGradient swiglu_backward(float g, float u, float silu, float s, float q, float w) {
    SwigluGradient d;
    float h = contract::bf16(ptx::pack_bf16(__fmul_rn(silu, u), 0.f) & 0xFFFF); // a NaN is a NaN here
    float dh = __fmul_rn(q, w), slope = __fmul_rn(s, __fadd_rn(1.f, __fmul_rn(g, __fsub_rn(1.f, s))));
    d.term = __fmul_rn(q, h);
    d.hw = __fmul_rn(h, w);
    d.dg = __fmul_rn(__fmul_rn(dh, u), slope);
    d.du = __fmul_rn(dh, silu);
    return d;
}

// Gradients16 are those of 16 tokens by a warp's 16 columns: of a thread, two tokens in each place. With r = lane%4, place 2e+j is
// tokens 8j+2r and 8j+2r+1 by column lane/4 of the warp's first eight (e = 0) or next.
struct Gradients16 {
    uint32_t dg[4], du[4], hw[4];
};

// cast packs two, and says whether both are numbers.
__device__ __forceinline__ bool cast(uint32_t &v, float lo, float hi) {
    v = ptx::pack_bf16(lo, hi);
    return !__isnanf(lo) & !__isnanf(hi);
}

// join is one level of the trees over columns, for two tokens: lane's bit says which it keeps, and it hands its partner the other's
// term.
__device__ __forceinline__ float join(float first, float second, int bit) {
    bool one = threadIdx.x & bit;
    return __fadd_rn(one ? second : first, __shfl_xor_sync(~0u, one ? first : second, bit));
}

// swiglu_backward8 makes what eight of the tokens have, the first or the second, from g, u and q as the accumulators hold them; and
// pair, of each column half, the sums of q*h over two columns. Columns past the width, where inside says no, count there
// as -0, which changes no sum.
__device__ __forceinline__ void swiglu_backward8(Gradients16 &d, float *pair, int second, const float *q, const float *g, const float *u,
                                                 float lo_weight, float hi_weight, const bool (&inside)[2]) {
    float silu[4], s[4];
    bool easy = true;
#pragma unroll
    for (int i = 0; i < 4; i++) silu[i] = contract::silu_easy(g[i], s[i]), easy &= contract::silu_is_easy(g[i]);
    if (!easy) {
#pragma unroll
        for (int i = 0; i < 4; i++) silu[i] = contract::silu(g[i]), s[i] = contract::sigmoid(g[i]);
    }
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int i = 2 * e + second, lo = 2 * e, hi = lo + 1;
        SwigluGradient a = swiglu_backward(g[lo], u[lo], silu[lo], s[lo], q[lo], lo_weight);
        SwigluGradient b = swiglu_backward(g[hi], u[hi], silu[hi], s[hi], q[hi], hi_weight);
        pair[e] = join(inside[e] ? a.term : -0.f, inside[e] ? b.term : -0.f, 4);
        if (!(cast(d.dg[i], a.dg, b.dg) & cast(d.du[i], a.du, b.du) & cast(d.hw[i], a.hw, b.hw)))
            d.dg[i] = contract::round2(a.dg, b.dg), d.du[i] = contract::round2(a.du, b.du), d.hw[i] = contract::round2(a.hw, b.hw);
    }
}

// tree16 ends the trees over a warp's 16 columns: in each lane, that of token16.
__device__ __forceinline__ int token16(int lane) { return (lane >> 3) * 8 + (lane & 3) * 2 + (lane >> 2 & 1); }
__device__ __forceinline__ float tree16(const float (&pair)[8]) {
    float eight[2];
#pragma unroll
    for (int e = 0; e < 2; e++) eight[e] = join(join(pair[e], pair[2 + e], 8), join(pair[4 + e], pair[6 + e], 8), 16);
    return __fadd_rn(eight[0], eight[1]);
}

// unload8 writes eight staged values, of which left are inside the matrix: all at once where its rows are multiples of 16 bytes.
__device__ __forceinline__ void unload8(bf16_t *to, uint32_t from, int left, int whole) {
    if (whole) {
        if (left > 0) *reinterpret_cast<uint4 *>(to) = ptx::load_shared16(from);
    } else {
#pragma unroll 1
        for (int i = 0; i < min(left, 8); i++) to[i] = ptx::load_shared2(from + 2 * i);
    }
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
        Walk walk(p.tiles, p.tile_count, p.blocks);
        auto look = [&](Tile t) { producer.look_ahead(t.rows, [&](int i) { return p.token[t.row + i]; }); };
        if (walk.more()) look(walk.tile);
        for (; walk.more(); walk.next()) {
            Tile t = walk.tile;
            int n = (t.rows + step - 1) / step * step, first = walk.block() * columns;
            bool is_shared = t.group == p.experts;
            if (first >= (is_shared ? p.shared_width : p.width)) {
                look(walk.ahead);
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
                look(walk.ahead);
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
        Walk walk(p.tiles, p.tile_count, p.blocks);
        int lane = consumer.lane;
        // Where this lane's row of four 8x8 blocks begins: of 16 tokens by two blocks of columns.
        uint32_t staged = ring.staging(consumer.group) + (lane & 15) * staging_pitch + (2 * consumer.warp + lane / 16) * 16;
        float acc[R::copies * R::most / 2] = {};
        for (; walk.more(); walk.next()) {
            Tile t = walk.tile;
            bool is_shared = t.group == p.experts;
            int width = is_shared ? p.shared_width : p.width, first = walk.block() * columns + consumer.group * own;
            const float *g = is_shared ? p.shared_g : p.g, *u = is_shared ? p.shared_u : p.u;
            if (walk.block() * columns >= width) continue;
            consumer.template multiply_any<step, 1>(acc, t.rows, stages);

#pragma unroll
            for (int c = 0; c < R::most; c += 32) {
                if (c >= t.rows) break;
                int rows = min(32, t.rows - c), row = t.row + c;
                // Tokens past the last repeat it, and nobody reads their results.
                int place = p.place[row + min(lane, rows - 1)];
                float weight = p.weight[row + min(lane, rows - 1)];
#pragma unroll
                for (int m = 0; m < R::copies; m++) {
                    int column = first + m * 64 + consumer.warp * 16 + lane / 4;
                    const bool inside[2] = {column < width, column + 8 < width};
                    float gs[16], us[16];
#pragma unroll
                    for (int i = 0; i < 8; i++) {
                        int64_t from = int64_t(__shfl_sync(~0u, place, i / 2 * 8 + lane % 4 * 2 + i % 2)) * width + column;
                        const float *g_at = g + from, *u_at = u + from;
#pragma unroll
                        for (int e = 0; e < 2; e++) {
                            int to = i / 2 * 4 + 2 * e + i % 2;
                            gs[to] = inside[e] ? g_at[8 * e] : 0.f, us[to] = inside[e] ? u_at[8 * e] : 0.f;
                        }
                    }
                    float pair[8];
                    const float *q = acc + (m * R::most + c) / 2;
                    consumer.sync();
#pragma unroll
                    for (int sixteen = 0; sixteen < 2; sixteen++) {
                        Gradients16 d;
#pragma unroll
                        for (int second = 0; second < 2; second++) {
                            int j = 2 * sixteen + second, token = 8 * j + lane % 4 * 2;
                            float lo = __shfl_sync(~0u, weight, token), hi = __shfl_sync(~0u, weight, token + 1);
                            swiglu_backward8(d, pair + 2 * j, second, q + 4 * j, gs + 4 * j, us + 4 * j, lo, hi, inside);
                        }
                        uint32_t to = staged + sixteen * 16 * staging_pitch;
                        ptx::store_transposed4(to, d.dg[0], d.dg[1], d.dg[2], d.dg[3]);
                        ptx::store_transposed4(to + 32 * staging_pitch, d.du[0], d.du[1], d.du[2], d.du[3]);
                        ptx::store_transposed4(to + 64 * staging_pitch, d.hw[0], d.hw[1], d.hw[2], d.hw[3]);
                    }
                    float sum = tree16(pair);
                    int at = (first + m * 64) / 16 + consumer.warp;
                    if (token16(lane) < rows && at * 16 < width) p.partial[int64_t(row + token16(lane)) * p.partials + at] = sum;
                    consumer.sync();
                    int thread = threadIdx.x & 127, chunk = thread % 8 * 8, left = width - (first + m * 64 + chunk);
                    for (int i = thread / 8; i < rows; i += 16) {
                        uint32_t from = ring.staging(consumer.group) + i * staging_pitch + chunk * 2;
                        int64_t to = int64_t(t.local + c + i) * width + first + m * 64 + chunk;
                        unload8((is_shared ? p.shared_dg : p.dg) + to, from, left, p.whole);
                        unload8((is_shared ? p.shared_du : p.du) + to, from + 32 * staging_pitch, left, p.whole);
                        unload8((is_shared ? p.shared_hw : p.hw) + to, from + 64 * staging_pitch, left, p.whole);
                    }
                }
            }
        }
    }
}

// The trees over a row's columns, from the sums of 16: a thread for each row. Places past the last hold -0, which changes no sum, so
// every level has pairs.
extern "C" __global__ void __launch_bounds__(128) experts_tree_bwd_f32(const __grid_constant__ TreeParams p) {
    ptx::wait_before();
    ptx::start_next();
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= p.offsets[p.experts + 1]) return;
    int n = ((row < p.offsets[p.experts] ? p.width : p.shared_width) + 15) / 16;
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
        fewer_registers<R>();
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
        more_registers<R>();
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

// One kernel for each entry of the table in tiles_backward.go; the rows staged by down_backward are 32 tokens of each of three matrices.
#define EXPERTS_BACKWARD(copies, most, step, stages)                                                                         \
    extern "C" __global__ void __launch_bounds__(threads, 1)                                                                 \
        experts_down_bwd_##copies##x##most##_bf16(const __grid_constant__ DownBackwardParams p) {                            \
        down_backward<Ring<copies, most, stages, 96>, step>(p);                                                              \
    }                                                                                                                        \
    extern "C" __global__ void __launch_bounds__(threads, 1)                                                                 \
        experts_gate_up_bwd_##copies##x##most##_bf16(const __grid_constant__ GateUpBackwardParams p) {                       \
        gate_up_backward<Ring<copies, most, stages, 64>, step>(p);                                                           \
    }
EXPERTS_BACKWARD(1, 64, 8, 8)
EXPERTS_BACKWARD(2, 128, 16, 4)
