// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// Combine (R7): a token's rows, each times its weight, in slot order, then the shared expert's, and one cast.

#include <type_traits>

#include "arith.cuh"
#include "params.cuh"

__device__ __forceinline__ void add_scaled(float &sum, float weight, uint32_t value) {
    sum = __fadd_rn(sum, __fmul_rn(contract::bf16(value), weight));
}

constexpr int at_once = 6; // rows
template <bool whole> using Words = std::conditional_t<whole, uint4, bf16_t>;

// A block for each token; whole: eight columns at a time, where rows are multiples of 16 bytes.
// Routes and plan are older than the kernel before this one, which waited for them; so they are read before waiting for rows.
template <bool whole> __device__ __forceinline__ void combine(const CombineParams &p) {
    int t = blockIdx.x;
    constexpr int each = whole ? 8 : 1;
    const int *rows = p.row + int64_t(t) * (p.slots + 1);
    const float *weights = p.weights + int64_t(t) * p.slots;
    extern __shared__ int slots_of[]; // the slots' rows, and their weights
    float *scales = reinterpret_cast<float *>(slots_of + p.slots + 1);
    bool is = t < p.tokens.get();
    int status = is ? __ldcg(p.status + t) : 0;
    if (is) {
        for (int k = threadIdx.x; k <= p.slots; k += blockDim.x) {
            slots_of[k] = __ldcg(rows + k);
            if (k < p.slots) scales[k] = __ldcg(weights + k);
            else scales[k] = status == 0 && p.shared ? contract::sigmoid(__ldcg(p.z + t)) : 0.f;
        }
    }
    __syncthreads();
    ptx::wait_before();
    ptx::start_next();
    if (!is) return;
    for (int j = threadIdx.x * each; j < p.hidden; j += blockDim.x * each) {
        bf16_t *y = p.y + int64_t(t) * p.hidden + j;
        float sum[each] = {};
        if (status == 0) {
            for (int first = 0; first < p.slots + p.shared; first += at_once) { // loads ahead of their use
                Words<whole> v[at_once];
#pragma unroll
                for (int i = 0; i < at_once; i++)
                    if (first + i < p.slots + p.shared)
                        v[i] = *reinterpret_cast<const Words<whole> *>(p.in + int64_t(slots_of[first + i]) * p.hidden + j);
#pragma unroll
                for (int i = 0; i < at_once; i++) {
                    if (first + i >= p.slots + p.shared) break;
                    if constexpr (whole) {
                        uint32_t words[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
#pragma unroll
                        for (int e = 0; e < 8; e++) add_scaled(sum[e], scales[first + i], e % 2 ? words[e / 2] >> 16 : words[e / 2] & 0xFFFF);
                    } else {
                        add_scaled(sum[0], scales[first + i], v[i]);
                    }
                }
            }
        } else if (status == 2) {
#pragma unroll
            for (int i = 0; i < each; i++) sum[i] = contract::nan();
        }
        if constexpr (whole) {
            *reinterpret_cast<uint4 *>(y) = make_uint4(contract::round2(sum[0], sum[1]), contract::round2(sum[2], sum[3]),
                                                       contract::round2(sum[4], sum[5]), contract::round2(sum[6], sum[7]));
        } else {
            *y = bf16_t(contract::round(sum[0]));
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) combine_rows_fwd_bf16(const __grid_constant__ CombineParams p) { combine<true>(p); }
extern "C" __global__ void __launch_bounds__(256) combine_any_fwd_bf16(const __grid_constant__ CombineParams p) { combine<false>(p); }

// pad copies rows to a wider pitch, zeros behind them: for sizes that the products cannot gather in place.
extern "C" __global__ void __launch_bounds__(256) layer_pad_bf16(const __grid_constant__ PadParams p) {
    ptx::wait_before();
    ptx::start_next();
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < p.rows * p.pitch; i += int64_t(gridDim.x) * blockDim.x) {
        int64_t row = i / p.pitch;
        int column = int(i % p.pitch);
        p.to[i] = column < p.columns ? p.from[row * p.columns + column] : bf16_t(0);
    }
}
