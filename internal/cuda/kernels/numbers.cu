// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// What the backend must know of the hardware's arithmetic before it trusts it (R14), and proofs over every input.

#include "arith.cuh"
#include "params.cuh"
#include "wgmma_gen.cuh"

// One warpgroup runs a chain of steps on the tensor cores: d = c + a*b over K, a multiple of 64; a may lie turned.
template <int turned> __device__ __forceinline__ void tc16(const KnownParams &p) {
    __shared__ alignas(1024) char tiles[(64 + 16) * 128];
    uint32_t a = ptx::shared_address(tiles), b = a + 64 * 128;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float acc[8];
    auto at = [&](int i) { return (warp * 16 + lane / 4 + i % 4 / 2 * 8) * 16 + i / 4 * 8 + lane % 4 * 2 + i % 2; };
#pragma unroll
    for (int i = 0; i < 8; i++) acc[i] = p.c[at(i)];
    for (int k = 0; k < p.k; k += 64) {
        __syncthreads();
        for (int i = threadIdx.x; i < (64 + 16) * 64; i += 128) { // row r's chunk c of eight values is at c^(r%8)
            int row = i / 64, column = i % 64;
            bf16_t v = row < 64 ? p.a[row * p.k + k + column] : p.b[(row - 64) * p.k + k + column];
            int line = turned && row < 64 ? column : row, place = turned && row < 64 ? row : column;
            reinterpret_cast<bf16_t *>(tiles)[((row & 64) + (line & 63)) * 64 + ((place / 8) ^ (line & 7)) * 8 + place % 8] = v;
        }
        ptx::fence_async();
        __syncthreads();
        ptx::wgmma_fence();
#pragma unroll
        for (int s = 0; s < 4; s++) wgmma<16, turned>::step(acc, ptx::wgmma_tile(a) + (turned ? 128 : 2) * s, ptx::wgmma_tile(b) + 2 * s, 1);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
    }
#pragma unroll
    for (int i = 0; i < 8; i++) p.d[at(i)] = acc[i];
}
extern "C" __global__ void __launch_bounds__(128) numbers_tc16_bf16(const __grid_constant__ KnownParams p) { tc16<0>(p); }
extern "C" __global__ void __launch_bounds__(128) numbers_tc16_turned_bf16(const __grid_constant__ KnownParams p) { tc16<1>(p); }

// Every gate there is, but -0: where silu_easy is used it must be silu, and what it makes on the way sigmoid; and silu_near2, with
// some other gate and ups, must be as near as it says, and settle nothing otherwise than silu does.
extern "C" __global__ void __launch_bounds__(256) numbers_silu_f32(const __grid_constant__ SiluParams p) {
    uint64_t step = uint64_t(gridDim.x) * blockDim.x;
    auto mix = [](uint32_t v) { return v = (v ^ v >> 16) * 0x85EBCA6B, v = (v ^ v >> 13) * 0xC2B2AE35, v ^ v >> 16; };
    for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < 1ull << 32; i += step) {
        float g = contract::from_bits(uint32_t(i));
        if (uint32_t(i) == 0x80000000) continue;
        float silu = contract::silu(g), s = 0.f;
        bool same = !contract::silu_is_easy(g) || (__float_as_uint(contract::silu_easy(g, s)) == __float_as_uint(silu) &&
                                                   __float_as_uint(s) == __float_as_uint(contract::sigmoid(g)));
        if (contract::silu_is_near(g)) {
            uint32_t a = mix(uint32_t(i)), b = mix(a + 1), c = mix(b + 1);
            float other = contract::from_bits((a & 0x807FFFFF) | (100 + (a >> 23) % 30) << 23); // from 2^-27 to below 8
            float u0 = contract::from_bits(b), u1 = contract::from_bits(c), s0, s1;
            contract::silu_near2(g, other, s0, s1);
            same &= fabs(double(s0) - double(silu)) <= 30 * 0x1p-24 * fabs(double(silu));
            s0 = __fmul_rn(s0, u0), s1 = __fmul_rn(s1, u1);
            same &= !contract::rounds_alike(s0, s1) ||
                    contract::round2(s0, s1) == contract::round2(__fmul_rn(silu, u0), __fmul_rn(contract::silu(other), u1));
        }
        if (!same) {
            atomicAdd(p.different, 1ull);
            p.different[1] = i;
        }
    }
}
