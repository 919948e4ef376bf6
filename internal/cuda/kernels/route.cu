// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The router: logits (R2), selection and replay (R3), weights (R4), and what becomes of each token (R13).

#include "arith.cuh"
#include "product.cuh"

constexpr int segment_stages = 2; // a segment is 128 terms

__device__ __forceinline__ float logit(float sum, int bf16) {
    if (bf16) sum = contract::bf16(contract::round(sum));
    return sum != sum ? contract::nan() : sum;
}

// segments: a block has 128 rows of the router, 64 tokens and one segment; what it makes is added by the selection.
constexpr int segments_tokens = 64;

__device__ __forceinline__ void segments(const LogitsParams &p) {
    using R = Ring<1, segments_tokens, 4>;
    extern __shared__ char shared[];
    R ring(shared);
    ring.init(Producer<R>::gathering);
    int block = blockIdx.x, first = blockIdx.y * segments_tokens, all = (p.hidden + stage_terms - 1) / stage_terms;
    int from = blockIdx.z * segment_stages, to = min(from + segment_stages, all);
    if (threadIdx.x >= consumers) {
        ptx::registers_down<40>();
        Producer<R> producer(ring);
        auto start = [&](const R &at, int s) {
            producer.start(at, 0, [&](uint32_t to, uint32_t full, int) {
                ptx::tensor_copy2(to, &p.router, full, s * stage_terms, block * copy_rows);
            });
        };
        int begun = from; // the weights do not wait for the kernel before, where it is known that there are tokens
        if (!p.tokens.device)
            for (R at = ring; begun < min(to, from + R::stages); at.next()) start(at, begun++);
        ptx::wait_before();
        ptx::start_next();
        int here = min(segments_tokens, p.tokens.get() - first);
        if (here <= 0) return;
        int n = (here + 7) / 8 * 8;
        producer.look_ahead(here, [&](int i) { return first + i; });
        producer.next_rows();
        for (int s = from; s < to; s++) {
            if (s >= begun) start(producer.ring, s);
            producer.gather(p.x, p.x_pitch, n, s * stage_terms, p.hidden);
        }
        producer.finish();
    } else {
        ptx::registers_up<96>();
        ptx::wait_before();
        int tokens = p.tokens.get();
        if (first >= tokens) return;
        Consumer<R> consumer(ring);
        float acc[segments_tokens / 2] = {};
        consumer.template multiply<segments_tokens>(acc, to - from); // columns past here are not used
        int row = block * copy_rows + consumer.group * 64 + consumer.warp * 16 + consumer.lane / 4;
#pragma unroll
        for (int i = 0; i < segments_tokens / 2; i++) {
            int token = first + i / 4 * 8 + consumer.lane % 4 * 2 + i % 2, e = row + i % 4 / 2 * 8;
            if (token < tokens && e <= p.experts)
                p.partial[(int64_t(blockIdx.z) * p.tokens.most + token) * (p.experts + 1) + e] = acc[i];
        }
    }
}

// logits, of many tokens: a block has 128 of them, which are operand M here, and some rows of the router; it walks all segments, and
// adds each to a sum rounded to nearest even. Few rows make many blocks, two to a multiprocessor, for tokens that are not so many.
constexpr int logits_tokens = 128, logits_few = 48, logits_many = 176;

template <int logits_experts> __device__ __forceinline__ void logits(const LogitsParams &p) {
    using R = Ring<1, logits_experts, 4>;
    extern __shared__ char shared[];
    R ring(shared);
    ring.init(1);
    int first = blockIdx.y * logits_tokens, expert = blockIdx.x * logits_experts, stages = (p.hidden + stage_terms - 1) / stage_terms;
    ptx::wait_before();
    ptx::start_next();
    int tokens = p.tokens.get();
    if (first >= tokens) return;
    if (threadIdx.x >= consumers) {
        ptx::registers_down<40>();
        if (threadIdx.x > consumers) return;
        for (int s = 0; s < stages; s++, ring.next()) {
            uint32_t full = ring.full(ring.stage);
            ptx::barrier_wait(ring.empty(ring.stage), ring.phase ^ 1);
            ptx::barrier_expect(full, R::bytes);
            ptx::tensor_copy2(ring.a(), &p.rows, full, s * stage_terms, first);
            ptx::tensor_copy2(ring.b(), &p.router, full, s * stage_terms, expert);
        }
    } else {
        ptx::registers_up<logits_experts == logits_few ? 96 : 232>();
        Consumer<R> consumer(ring, true);
        float acc[logits_experts / 2] = {}, sum[logits_experts / 2] = {};
        for (int s = 0; s < stages; s += segment_stages) {
            consumer.template multiply<logits_experts>(acc, min(segment_stages, stages - s));
#pragma unroll
            for (int i = 0; i < logits_experts / 2; i++) sum[i] = __fadd_rn(sum[i], acc[i]);
        }
        int token = first + consumer.group * 64 + consumer.warp * 16 + consumer.lane / 4;
        expert += consumer.lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < logits_experts / 2; i += 2) { // two experts of a token
            int t = token + i % 4 / 2 * 8, e = expert + i / 4 * 8;
            if (t >= tokens) continue;
            float v[2] = {logit(sum[i], p.bf16_logits), logit(sum[i + 1], p.bf16_logits)}, *to = p.logits + int64_t(t) * p.experts + e;
            if (e + 1 < p.experts && p.experts % 2 == 0) {
                *reinterpret_cast<float2 *>(to) = make_float2(v[0], v[1]);
                continue;
            }
#pragma unroll
            for (int j = 0; j < 2; j++) {
                if (e + j < p.experts) to[j] = v[j];
                if (e + j == p.experts && p.z) p.z[t] = v[j];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(threads, 2) route_segments_fwd_bf16(const __grid_constant__ LogitsParams p) { segments(p); }
extern "C" __global__ void __launch_bounds__(threads, 2) route_logits_fwd_few_bf16(const __grid_constant__ LogitsParams p) { logits<logits_few>(p); }
extern "C" __global__ void __launch_bounds__(threads, 1) route_logits_fwd_many_bf16(const __grid_constant__ LogitsParams p) { logits<logits_many>(p); }

// order gives a key that grows as the logit does; it is above 0 for finite ones, and equal for both zeros.
__device__ __forceinline__ uint32_t order(float v) {
    uint32_t b = __float_as_uint(__fadd_rn(v, 0.f)); // of -0 that is +0
    return b ^ (uint32_t(int32_t(b) >> 31) | 0x80000000);
}

constexpr int few_most = 32; // keys: one for each lane

// few leaves out keys that cannot be among the top_k largest: those below the largest of as many lanes. What is left, hardly more as a
// rule, goes to memory with its ids; it says how many, and writes none where they are more than few_most.
template <int held>
__device__ __forceinline__ int few(const uint32_t (&keys)[held], int top_k, uint32_t *few_keys, uint32_t *few_ids) {
    int lane = threadIdx.x & 31, mine = 0;
    uint32_t most = keys[0], least = 0;
#pragma unroll
    for (int j = 1; j < held; j++) most = max(most, keys[j]);
    for (int k = 0; k < top_k; k++) {
        least = __reduce_max_sync(~0u, most);
        if (most == least) most = 0;
    }
    least = max(least, 1u);
#pragma unroll
    for (int j = 0; j < held; j++) mine += keys[j] >= least;
    int until = mine;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        int from = __shfl_up_sync(~0u, until, d);
        if (lane >= d) until += from;
    }
    int all = __shfl_sync(~0u, until, 31);
    if (all > few_most) return all;
    int to = until - mine;
#pragma unroll
    for (int j = 0; j < held; j++)
        if (keys[j] >= least) few_keys[to] = keys[j], few_ids[to++] = j * 32 + lane;
    __syncwarp();
    return all;
}

// tree sums v[0..n) by R4, in place, with one warp.
__device__ __forceinline__ float tree(float *v, int n) {
    int lane = threadIdx.x & 31;
    for (; n > 1; n = (n + 1) / 2) {
        for (int base = 0; base < n / 2; base += 32) {
            int i = base + lane;
            float sum = i < n / 2 ? __fadd_rn(v[2 * i], v[2 * i + 1]) : 0.f;
            __syncwarp();
            if (i < n / 2) v[i] = sum;
            __syncwarp();
        }
        if (n % 2 && lane == 0) v[n / 2] = v[n - 1];
        __syncwarp();
    }
    return v[0];
}

__device__ __forceinline__ float warp_max(float v) {
    for (int d = 16; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, d));
    return v;
}

// route_token does a token with one warp: l are its logits, chosen and scratch have room for E each.
template <int held> __device__ __forceinline__ void route_token(const SelectParams &p, int t, const float *l, float z, int *chosen, float *scratch) {
    int lane = threadIdx.x & 31;
    int *ids = p.ids + int64_t(t) * p.top_k;
    float *weights = p.weights + int64_t(t) * p.top_k;
    const int *replay = p.replay ? p.replay + int64_t(t) * p.top_k : nullptr;
    uint32_t keys[held];
    bool good = contract::finite(z);
#pragma unroll
    for (int j = 0; j < held; j++) {
        int e = j * 32 + lane;
        float v = e < p.experts ? l[e] : 0.f;
        good &= contract::finite(v);
        keys[j] = e < p.experts ? order(v) : 0;
    }
    int status = replay && replay[0] == -1 ? 1 : __all_sync(~0u, good) ? 0 : 2;
    if (lane == 0) p.status[t] = status;
    if (status) {
        for (int k = lane; k < p.top_k; k += 32) ids[k] = -1, weights[k] = 0.f;
        return;
    }
    if (replay) {
        for (int k = lane; k < p.top_k; k += 32) chosen[k] = replay[k];
    } else {
        uint32_t *few_keys = reinterpret_cast<uint32_t *>(scratch), *few_ids = few_keys + few_most;
        int left = p.top_k <= few_most && p.experts >= 2 * few_most ? few(keys, p.top_k, few_keys, few_ids) : few_most + 1;
        if (left <= few_most) { // each lane counts how many come before its own
            uint32_t key = lane < left ? few_keys[lane] : 0, e = lane < left ? few_ids[lane] : 0;
            int before = 0;
            for (int i = 0; i < left; i++) before += few_keys[i] > key || (few_keys[i] == key && few_ids[i] < e);
            if (lane < left && before < p.top_k) chosen[before] = int(e);
        } else {
            for (int k = 0; k < p.top_k; k++) {
                uint32_t best = 0;
                int at = 0;
#pragma unroll
                for (int j = 0; j < held; j++)
                    if (keys[j] > best) best = keys[j], at = j * 32 + lane;
                uint32_t most = __reduce_max_sync(~0u, best);
                int e = int(__reduce_min_sync(~0u, best == most ? unsigned(at) : ~0u));
#pragma unroll
                for (int j = 0; j < held; j++)
                    if (j * 32 + lane == e) keys[j] = 0;
                if (lane == 0) chosen[k] = e;
            }
        }
    }
    __syncwarp();
    float sum, largest = -contract::infinity();
    if (p.norm) {
        for (int k = lane; k < p.top_k; k += 32) largest = fmaxf(largest, l[chosen[k]]);
        largest = warp_max(largest);
        for (int k = lane; k < p.top_k; k += 32) scratch[k] = contract::exp(__fsub_rn(l[chosen[k]], largest));
        __syncwarp();
        sum = tree(scratch, p.top_k);
    } else {
        for (int e = lane; e < p.experts; e += 32) largest = fmaxf(largest, l[e]);
        largest = warp_max(largest);
        for (int e = lane; e < p.experts; e += 32) scratch[e] = contract::exp(__fsub_rn(l[e], largest));
        __syncwarp();
        sum = tree(scratch, p.experts);
    }
    for (int k = lane; k < p.top_k; k += 32) {
        ids[k] = chosen[k];
        weights[k] = __fdiv_rn(contract::exp(__fsub_rn(l[chosen[k]], largest)), sum);
    }
}

// A block for each token, which first adds the segments.
template <int held> __device__ __forceinline__ void select_spread(const SelectParams &p) {
    extern __shared__ float floats[];
    ptx::wait_before();
    ptx::start_next();
    int t = blockIdx.x, tokens = p.tokens.get();
    if (t >= tokens) return;
    float *l = floats;
    for (int e = threadIdx.x; e <= p.experts; e += blockDim.x) {
        const float *from = p.partial + int64_t(t) * (p.experts + 1) + e;
        int64_t step = int64_t(p.tokens.most) * (p.experts + 1);
        float sum = 0.f;
#pragma unroll 16
        for (int s = 0; s < p.segments; s++) sum = __fadd_rn(sum, from[s * step]);
        l[e] = sum = logit(sum, p.bf16_logits);
        if (e < p.experts)
            p.logits[int64_t(t) * p.experts + e] = sum;
        else if (p.z)
            p.z[t] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 32) route_token<held>(p, t, l, p.z ? l[p.experts] : 0.f, (int *)(floats + p.experts + 1), floats + 2 * p.experts + 1);
}

// A warp for each token.
template <int held> __device__ __forceinline__ void select_many(const SelectParams &p) {
    extern __shared__ float floats[];
    ptx::wait_before();
    ptx::start_next();
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31, t = blockIdx.x * (blockDim.x / 32) + warp;
    if (t >= p.tokens.get()) return;
    float *l = floats + warp * 3 * p.experts;
    for (int e = lane; e < p.experts; e += 32) l[e] = p.logits[int64_t(t) * p.experts + e];
    __syncwarp();
    route_token<held>(p, t, l, p.z ? p.z[t] : 0.f, (int *)(l + p.experts), l + 2 * p.experts);
}

// For up to 512 and 2048 experts.
extern "C" __global__ void __launch_bounds__(256) route_select_spread_512_f32(const __grid_constant__ SelectParams p) { select_spread<16>(p); }
extern "C" __global__ void __launch_bounds__(256) route_select_spread_2048_f32(const __grid_constant__ SelectParams p) { select_spread<64>(p); }
extern "C" __global__ void __launch_bounds__(256) route_select_512_f32(const __grid_constant__ SelectParams p) { select_many<16>(p); }
extern "C" __global__ void __launch_bounds__(256) route_select_2048_f32(const __grid_constant__ SelectParams p) { select_many<64>(p); }
