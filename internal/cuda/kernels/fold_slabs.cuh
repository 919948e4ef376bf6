// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The way of a warp's sums from and to FP32 gradients, both by the copy engine and both beside products. While a piece is made, the sums
// that the next one begins with come into shared memory; at its end its own sums and those change places, element by element, and are
// stored while the next piece is made. So registers and slabs are two buffers.

#pragma once

#include "fold_store.cuh"

namespace fold {

// Sums is where a warpgroup's part of a gradient is; of nothing where it has no rows.
struct Sums {
    float *matrix = nullptr;
    const TensorMap *map = nullptr; // of all memory, by the gradient's pitch: a slab
    Place at{};
    __device__ __forceinline__ Sums() {}
    __device__ __forceinline__ Sums(float *matrix, const TensorMap *map, const Place &at) : matrix(matrix), map(map), at(at) {}

    // by_engine says whether the copy engine can bring and store block m.
    __device__ __forceinline__ bool by_engine(int m) const {
        return at.whole(m) && at.columns % 4 == 0 && reinterpret_cast<uintptr_t>(matrix) % 16 == 0;
    }
    // corner is of the warp's rows of block m.
    __device__ __forceinline__ uint64_t corner(int m) const {
        return reinterpret_cast<uint64_t>(matrix + int64_t(at.row[m] + slab_rows * at.warp) * at.columns + at.column[m]);
    }
};

// Slabs are a warp's two, of a block of its warpgroup each. A slab is 16 rows by 128 columns, in strips of 32 columns, swizzled.
struct Slabs {
    static constexpr int strip_bytes = slab_bytes / 4;
    uint32_t room, arrived, mine; // mine: of this thread's first two
    uint32_t phases = 0;          // of each, a bit
    int lane;

    __device__ __forceinline__ Slabs(uint32_t slabs, uint32_t bars, int l) : room(slabs), arrived(bars), lane(l) {
        int row = lane / 4, chunk = lane % 4 / 2;
        mine = room + row * 128 + ((chunk ^ row) << 4) + lane % 2 * 8;
    }

    // ask has the sums brought that the next piece begins with. What the slabs hold is stored before, or being stored.
    __device__ __forceinline__ void ask(const Sums &next) const {
        if (lane == 0) {
#pragma unroll
            for (int m = 0; m < 2; m++) {
                if (m == 0) ptx::store_wait_read<1>();
                else ptx::store_wait_read<0>();
                if (!next.by_engine(m)) continue;
                uint64_t address = next.corner(m);
                ptx::barrier_expect(arrived + 8 * m, slab_bytes);
                ptx::tensor_copy4(room + m * slab_bytes, next.map, arrived + 8 * m, map_x(address), 0, 0, map_z(address));
            }
        }
        __syncwarp();
    }

    // exchange stores a piece's sums, and takes those that the next one begins with, which were asked for.
    __device__ __forceinline__ void exchange(float *acc, const Sums &sums, const Sums &next) {
#pragma unroll
        for (int m = 0; m < 2; m++) {
            bool stored = sums.by_engine(m), loaded = next.by_engine(m);
            if (!stored) each_inside(sums.at, m, [&](int i, int64_t offset) { sums.matrix[offset] = acc[i]; });
            if (loaded) {
                ptx::barrier_wait(arrived + 8 * m, phases >> m & 1);
                phases ^= 1 << m;
            }
            swap(acc + m * half, m * slab_bytes);
            ptx::fence_async();
            __syncwarp();
            if (lane == 0) {
                uint64_t address = sums.corner(m);
                if (stored) ptx::tensor_store4(sums.map, room + m * slab_bytes, map_x(address), 0, 0, map_z(address));
                ptx::store_commit(); // a group to a slab, also where there is nothing in it
            }
            if (!loaded) each_inside(next.at, m, [&](int i, int64_t offset) { acc[i] = next.matrix[offset]; });
        }
    }

    // swap has a block's sums and what lies in its slab change places.
    __device__ __forceinline__ void swap(float *acc, int slab) const {
#pragma unroll
        for (int s = 0; s < 4; s++) {
            float2 v[8];
            auto each = [&](auto go) { // go(k, address, sums) for pairs of sums: of column block 4*s+k/2 and row k%2
#pragma unroll
                for (int k = 0; k < 8; k++)
                    go(k, (mine ^ k / 2 * 32) + slab + s * strip_bytes + k % 2 * 1024, acc + 16 * s + 2 * k);
            };
            each([&](int k, uint32_t at, float *) { v[k] = ptx::load_shared8(at); });
            each([&](int, uint32_t at, const float *a) { ptx::store_shared8(at, a[0], a[1]); });
            each([&](int k, uint32_t, float *a) { a[0] = v[k].x, a[1] = v[k].y; });
        }
    }
};

} // namespace fold
