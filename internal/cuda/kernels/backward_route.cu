// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The gradients of the logits (R10), and dx from all that a token went into (R9).

#include <type_traits>

#include "arith.cuh"
#include "backward.cuh"

// A warp for each token. Tokens that take no part have no gradient of a logit, and nobody reads one.
template <bool norm> __device__ __forceinline__ void route_backward(const RouteBackwardParams &p) {
    extern __shared__ float floats[];
    ptx::wait_before();
    ptx::start_next();
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31, t = blockIdx.x * (blockDim.x / 32) + warp;
    if (t >= p.tokens.get()) return;
    const int *rows = p.row + int64_t(t) * (p.slots + 1), *ids = p.ids + int64_t(t) * p.slots;
    if (rows[0] < 0) return;
    const float *weights = p.weights + int64_t(t) * p.slots;
    float *room = floats + warp * p.room;
    for (int k = lane; k < p.slots; k += 32) room[k] = __fmul_rn(weights[k], p.dweight[rows[k]]);
    __syncwarp();
    float c = tree(room, p.slots);
    if constexpr (norm) {
        for (int k = lane; k < p.slots; k += 32)
            p.dlogits[int64_t(t) * p.slots + k] = __fmul_rn(weights[k], __fsub_rn(p.dweight[rows[k]], c));
    } else {
        const float *l = p.logits + int64_t(t) * p.experts;
        float *dl = p.dlogits + int64_t(t) * p.experts, largest = -contract::infinity();
        for (int e = lane; e < p.experts; e += 32) largest = fmaxf(largest, l[e]);
        largest = warp_max(largest);
        __syncwarp();
        for (int e = lane; e < p.experts; e += 32) room[e] = contract::exp(__fsub_rn(l[e], largest));
        __syncwarp();
        float sum = tree(room, p.experts);
        auto weight = [&](int e) { return __fdiv_rn(contract::exp(__fsub_rn(l[e], largest)), sum); };
        for (int e = lane; e < p.experts; e += 32) dl[e] = __fmul_rn(weight(e), __fsub_rn(0.f, c));
        __syncwarp();
        for (int k = lane; k < p.slots; k += 32) dl[ids[k]] = __fmul_rn(weight(ids[k]), __fsub_rn(p.dweight[rows[k]], c));
    }
    if (p.shared && lane == 0) {
        float s = contract::sigmoid(p.z[t]);
        p.dz[t] = __fmul_rn(p.dweight[rows[p.slots]], __fmul_rn(s, __fsub_rn(1.f, s)));
    }
}

extern "C" __global__ void __launch_bounds__(256) route_norm_bwd_f32(const __grid_constant__ RouteBackwardParams p) { route_backward<true>(p); }
extern "C" __global__ void __launch_bounds__(256) route_dense_bwd_f32(const __grid_constant__ RouteBackwardParams p) { route_backward<false>(p); }

// add adds columns of a row of BF16, as they are or scaled.
template <bool scaled> __device__ __forceinline__ void add(float (&sum)[8], float by, uint4 v) {
    uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float value = contract::bf16(i % 2 ? words[i / 2] >> 16 : words[i / 2] & 0xFFFF);
        sum[i] = __fadd_rn(sum[i], scaled ? __fmul_rn(by, value) : value);
    }
}
template <bool scaled> __device__ __forceinline__ void add(float (&sum)[1], float by, bf16_t v) {
    sum[0] = __fadd_rn(sum[0], scaled ? __fmul_rn(by, contract::bf16(v)) : contract::bf16(v));
}

// add_rows adds n rows in their order, some loads ahead of their use: row(i) is where the columns of row i are, by(i) its scale. Rows that
// are scaled are the router's, which are read again; the others are not, and the first to leave the cache.
template <bool scaled, int each, class Row, class By> __device__ __forceinline__ void add_rows(float (&sum)[each], int n, Row row, By by) {
    using Words = std::conditional_t<each == 8, uint4, bf16_t>;
    constexpr int at_once = 6;
#pragma unroll 1
    for (int first = 0; first < n; first += at_once) {
        Words v[at_once];
#pragma unroll
        for (int i = 0; i < at_once; i++)
            if (first + i < n) {
                auto from = reinterpret_cast<const Words *>(row(first + i));
                v[i] = scaled ? *from : __ldcs(from);
            }
#pragma unroll
        for (int i = 0; i < at_once; i++)
            if (first + i < n) add<scaled>(sum, by(first + i), v[i]);
    }
}

// A block for each token. Rows are sorted by expert, so a token's rows in ascending order are its experts in ascending order.
template <int each, bool norm> __device__ __forceinline__ void input_gradient(const InputParams &p) {
    extern __shared__ int sorted[]; // rows; with norm also experts, and the gradients of their logits
    int *experts = sorted + p.slots + 1;
    float *scales = reinterpret_cast<float *>(experts + p.slots);
    ptx::wait_before();
    ptx::start_next();
    int t = blockIdx.x;
    if (t >= p.tokens.get()) return;
    const int *rows = p.row + int64_t(t) * (p.slots + 1);
    bool works = rows[0] >= 0;
    for (int k = threadIdx.x; works && k <= p.slots; k += blockDim.x) {
        int row = rows[k], rank = 0;
        if (k == p.slots) {
            sorted[k] = row; // the shared expert's is the last, or there is none
            continue;
        }
        for (int i = 0; i < p.slots; i++) rank += rows[i] < row;
        sorted[rank] = row;
        if constexpr (norm) experts[rank] = p.ids[int64_t(t) * p.slots + k], scales[rank] = p.dlogits[int64_t(t) * p.slots + k];
    }
    __syncthreads();
    const float *dense = p.dlogits + int64_t(t) * p.experts;
    for (int j = threadIdx.x * each; j < p.hidden; j += blockDim.x * each) {
        float sum[each] = {};
        if (works) {
            add_rows<false>(sum, p.slots + p.shared, [&](int i) { return p.in + int64_t(sorted[i]) * p.hidden + j; }, [](int) { return 1.f; });
            add_rows<true>(
                sum, norm ? p.slots : p.experts, [&](int i) { return p.router + (norm ? experts[i] : i) * p.router_pitch + j; },
                [&](int i) { return norm ? scales[i] : dense[i]; });
            if (p.shared) add_rows<true>(sum, 1, [&](int) { return p.router + p.experts * p.router_pitch + j; }, [&](int) { return p.dz[t]; });
        }
        bf16_t *dx = p.dx + int64_t(t) * p.hidden + j;
        if constexpr (each == 8) {
            *reinterpret_cast<uint4 *>(dx) = make_uint4(contract::round2(sum[0], sum[1]), contract::round2(sum[2], sum[3]),
                                                        contract::round2(sum[4], sum[5]), contract::round2(sum[6], sum[7]));
        } else {
            *dx = bf16_t(contract::round(sum[0]));
        }
    }
}

// Eight columns at a time where rows are multiples of 16 bytes, else one.
#define INPUT(name, each)                                                                                                           \
    extern "C" __global__ void __launch_bounds__(256) backward_input_norm_##name##_bf16(const __grid_constant__ InputParams p) {    \
        input_gradient<each, true>(p);                                                                                              \
    }                                                                                                                               \
    extern "C" __global__ void __launch_bounds__(256) backward_input_dense_##name##_bf16(const __grid_constant__ InputParams p) {   \
        input_gradient<each, false>(p);                                                                                             \
    }
INPUT(rows, 8)
INPUT(any, 1)
