// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The way of a warpgroup's sums to BF16 gradients, and from FP32 sums beside them.

#pragma once

#include "arith.cuh"
#include "fold_ring.cuh"

namespace fold {

// A warpgroup's sums are two blocks of 64 rows by 128 columns, below or beside one another. With q = lane/4 and r = lane%4,
// acc[64m+4j] and the next are row 16*warp+q of block m by columns 8j+2r and 8j+2r+1, acc[64m+4j+2] and the next the same of the
// row eight further.
constexpr int half = 64, half_columns = 128;

// Place is where a warpgroup's blocks are in a matrix [rows,columns].
struct Place {
    int rows, columns, warp, lane;
    int row[2], column[2]; // of each block's corner
    __device__ __forceinline__ bool whole(int m) const { return row[m] + 64 <= rows && column[m] + half_columns <= columns; }
};

__device__ __forceinline__ bool pairs(const Place &at, int m, const float *matrix) {
    return at.whole(m) && at.columns % 2 == 0 && reinterpret_cast<uintptr_t>(matrix) % 8 == 0;
}

// each_pair calls go(i, offset) for the pairs of a block that lies in the matrix throughout, acc[i] and the next.
template <class Do> __device__ __forceinline__ void each_pair(const Place &at, int m, Do go) {
    int64_t corner = int64_t(at.row[m] + at.warp * 16 + at.lane / 4) * at.columns + at.column[m] + at.lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < half; i += 2) go(m * half + i, corner + int64_t(i % 4 / 2 * 8) * at.columns + i / 4 * 8);
}

// each_inside calls go(i, offset) for the acc[i] of a block that lie in the matrix.
template <class Do> __device__ __forceinline__ void each_inside(const Place &at, int m, Do go) {
#pragma unroll
    for (int i = 0; i < half; i++) {
        int row = at.row[m] + at.warp * 16 + at.lane / 4 + i % 4 / 2 * 8, column = at.column[m] + i / 4 * 8 + at.lane % 4 * 2 + i % 2;
        if (row < at.rows && column < at.columns) go(m * half + i, int64_t(row) * at.columns + column);
    }
}

__device__ __forceinline__ void load(float *acc, const float *from, const Place &at) {
#pragma unroll
    for (int m = 0; m < 2; m++) {
        if (pairs(at, m, from)) {
            each_pair(at, m, [&](int i, int64_t offset) {
                float2 v = __ldcs(reinterpret_cast<const float2 *>(from + offset));
                acc[i] = v.x, acc[i + 1] = v.y;
            });
        } else {
            each_inside(at, m, [&](int i, int64_t offset) { acc[i] = from[offset]; });
        }
    }
}

// prefetch has a piece that comes soon brought to the L2 cache.
__device__ __forceinline__ void prefetch(const float *from, const Place &at) {
    int thread = threadIdx.x & 127;
    bool second = thread >= 64; // half the threads, the other block
    int row = (second ? at.row[1] : at.row[0]) + thread % 64, column = second ? at.column[1] : at.column[0];
    if (at.whole(0) && at.whole(1) && at.columns % 4 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0)
        ptx::prefetch_bulk(from + int64_t(row) * at.columns + column, 4 * half_columns);
}

// stage puts a strip of a block into shared memory, a warp's 16 rows by 64 columns, cast and swizzled.
__device__ __forceinline__ void stage(const float *sums, int lane, uint32_t to) {
    int row = lane % out_rows;
#pragma unroll
    for (int j = 0; j < half / 2; j += 8) {
        const float *v = sums + j;
        bool number = true;
#pragma unroll
        for (int i = 0; i < 8; i++) number &= !__isnanf(v[i]);
        uint32_t r[4];
#pragma unroll
        for (int i = 0; i < 4; i++) r[i] = ptx::pack_bf16(v[2 * i], v[2 * i + 1]);
        if (!number) {
#pragma unroll
            for (int i = 0; i < 4; i++) r[i] = contract::round2(v[2 * i], v[2 * i + 1]);
        }
        __syncwarp();
        int chunk = j / 4 + lane / 16;
        ptx::store_matrix4(to + row * 128 + ((chunk ^ row % 8) << 4), r[0], r[1], r[2], r[3]);
    }
}

// store goes through shared memory by the copy engine, a strip at a time, and does not wait until they are written; map is of all
// memory, by the matrix's pitch. Each warp stores its own rows.
__device__ __forceinline__ void store(const float *acc, bf16_t *to, const TensorMap *map, const Place &at, uint32_t staging) {
    bool even = 2 * at.columns % 16 == 0 && reinterpret_cast<uintptr_t>(to) % 16 == 0;
#pragma unroll
    for (int m = 0; m < 2; m++) {
        if (!at.whole(m) || !even) {
            each_inside(at, m, [&](int i, int64_t offset) { to[offset] = bf16_t(contract::round(acc[i])); });
            continue;
        }
        bf16_t *corner = to + int64_t(at.row[m] + out_rows * at.warp) * at.columns + at.column[m];
#pragma unroll
        for (int s = 0; s < half_columns / strip; s++) {
            uint32_t room = staging + s % 2 * out_bytes;
            if (at.lane == 0) ptx::store_wait_read<1>(); // the strip that was there before has been read
            __syncwarp();
            stage(acc + m * half + s * half / 2, at.lane, room);
            ptx::fence_async();
            __syncwarp();
            if (at.lane == 0) {
                uint64_t address = reinterpret_cast<uint64_t>(corner + s * strip);
                ptx::tensor_store3(map, room, map_x(address), 0, map_z(address));
                ptx::store_commit();
            }
        }
    }
}

} // namespace fold
