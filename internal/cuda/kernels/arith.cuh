// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The contract's arithmetic on the GPU: package contract's functions under the same names. Every rounding is spelled out;
// a fused multiply-add stands only where the product is exact, or inside a division that is rounded once.

#pragma once

#include "ptx.cuh"

namespace contract {

__device__ __forceinline__ float from_bits(uint32_t b) { return __uint_as_float(b); }
__device__ __forceinline__ float bf16(uint32_t low16) { return from_bits(low16 << 16); }
__device__ __forceinline__ bool finite(float f) { return (__float_as_uint(f) & 0x7F800000) != 0x7F800000; }
__device__ __forceinline__ float infinity() { return from_bits(0x7F800000); }
__device__ __forceinline__ float nan() { return from_bits(0x7FFFFFFF); }

// round2 is the cast to BF16 (R0) of two, the first in the lower half. The instruction gives 0x7FFF for every NaN, which is the
// largest of all as a signed number; 0x7FC0 is still larger than infinity.
__device__ __forceinline__ uint32_t round2(float lo, float hi) { return __vmins2(ptx::pack_bf16(lo, hi), 0x7FC07FC0u); }

// round casts one.
__device__ __forceinline__ uint32_t round(float f) { return round2(f, 0.f) & 0xFFFF; }

// pow2 is 2^n for n from -126 to 127.
__device__ __forceinline__ float pow2(int n) { return from_bits(uint32_t(n + 127) << 23); }

// magic, added to |x| < 2^22, leaves x rounded to an integer in the low bits: to nearest, ties to even.
constexpr float magic = 12582912.f; // 1.5 * 2^23

// exp_core gives p of R4 and the integer n, as the bits of n+magic, for |x| < 104.
__device__ __forceinline__ float exp_core(float x, uint32_t &n_bits) {
    float shifted = __fadd_rn(__fmul_rn(x, 1.44269504f), magic);
    n_bits = __float_as_uint(shifted);
    float n = __fadd_rn(shifted, -magic);
    float r = __fmaf_rn(n, -0.693359375f, x); // n * 0.693359375 is exact: 8 bits times 10
    r = __fsub_rn(r, __fmul_rn(n, -2.12194440e-4f));
    float p = 1.9875691500e-4f;
    p = __fadd_rn(__fmul_rn(p, r), 1.3981999507e-3f);
    p = __fadd_rn(__fmul_rn(p, r), 8.3334519073e-3f);
    p = __fadd_rn(__fmul_rn(p, r), 4.1665795894e-2f);
    p = __fadd_rn(__fmul_rn(p, r), 1.6666665459e-1f);
    p = __fadd_rn(__fmul_rn(p, r), 5.0000001201e-1f);
    return __fadd_rn(__fadd_rn(__fmul_rn(p, __fmul_rn(r, r)), r), 1.f);
}

// exp is R4's.
__device__ __forceinline__ float exp(float x) {
    if (x != x) return nan();
    if (x > 88.72283f) return infinity();
    if (x < -103.97208f) return 0.f;
    uint32_t bits;
    float p = exp_core(x, bits);
    int n = int(bits - __float_as_uint(magic)), half = n >> 1;
    return __fmul_rn(__fmul_rn(p, pow2(half)), pow2(n - half));
}

__device__ __forceinline__ float sigmoid(float z) { return __fdiv_rn(1.f, __fadd_rn(1.f, exp(-z))); }

// silu is g / (1 + exp(-g)), each step rounded (R6).
__device__ __forceinline__ float silu(float g) { return __fdiv_rn(g, __fadd_rn(1.f, exp(-g))); }

// silu_is_easy says where silu_easy equals silu: for gates below 86 in magnitude. -0 is left out, but no tcdot gives it.
__device__ __forceinline__ bool silu_is_easy(float g) { return fabsf(g) < 86.f; }

// silu_easy has no branch. Its 2^n is one step in the exponent, since the result is normal; its division is the correctly
// rounded sequence without the cases at the ends of the range: the divisor is at least 1 and below 2^125, and where g is
// so small that a remainder could underflow, the divisor is exactly 2. On the way it makes s = sigmoid(g).
__device__ __forceinline__ float silu_easy(float g, float &s) {
    uint32_t bits;
    float p = exp_core(-g, bits);
    float d = __fadd_rn(1.f, from_bits(__float_as_uint(p) + (bits << 23)));
    float y = ptx::reciprocal(d);
    s = y = __fmaf_rn(y, __fmaf_rn(-d, y, 1.f), y);
    float q = __fmul_rn(g, y);
    q = __fmaf_rn(__fmaf_rn(-d, q, g), y, q);
    return __fmaf_rn(__fmaf_rn(-d, q, g), y, q);
}
__device__ __forceinline__ float silu_easy(float g) {
    float s;
    return silu_easy(g, s);
}

// silu_near2 approximates two: each is within 30 * 2^-24 of silu, relatively, and after a product with any number, rounded, within
// near_ulps of what silu would give. For gates below 8 in magnitude, and so large that the result is normal.
constexpr uint32_t near_ulps = 32;
__device__ __forceinline__ bool silu_is_near(float g) { return fabsf(g) < 8.f && fabsf(g) > 0x1p-100f; }
__device__ __forceinline__ float silu_divisor(float g) { return __fadd_rn(1.f, ptx::exp2(__fmul_rn(g, -1.44269504f))); }
__device__ __forceinline__ void silu_near2(float g0, float g1, float &s0, float &s1) {
    float d0 = silu_divisor(g0), d1 = silu_divisor(g1), y = ptx::reciprocal(__fmul_rn(d0, d1)); // one for both
    s0 = __fmul_rn(g0, __fmul_rn(y, d1));
    s1 = __fmul_rn(g1, __fmul_rn(y, d0));
}

// rounds_alike says of two floats whether the cast to BF16 gives one result for all floats within near_ulps of each.
__device__ __forceinline__ bool rounds_alike(float lo, float hi) {
    uint32_t low = __byte_perm(__float_as_uint(lo), __float_as_uint(hi), 0x5410); // what the cast drops
    constexpr uint32_t from = 0x8000 - near_ulps, within = 2 * near_ulps + 1;
    return __viaddmin_u16x2(low, (0x10000 - from) * 0x10001u, within * 0x10001u) == within * 0x10001u;
}

} // namespace contract
