// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The pipeline of the weights' gradients. A stage holds up to two segments of a stream: 64 rows of the laid operand (dg, du, hw: 256
// columns to a piece) and of the gathered one (x, dy: 128 columns), in strips of 64 columns, swizzled over 128 bytes.

#pragma once

#include "fold.cuh"
#include "ptx.cuh"

namespace fold {

constexpr int consumers = 256, producers = 128, threads = consumers + producers;
constexpr int laid_columns = 256, gathered_columns = 128; // of a piece
constexpr int strip = 64, stage_segments = 2;
constexpr int segment_bytes = segment_rows * 2 * strip, strip_bytes = stage_segments * segment_bytes; // of a strip
constexpr int laid_bytes = laid_columns / strip * strip_bytes, stage_bytes = laid_bytes + gathered_columns / strip * strip_bytes;
constexpr int stages = 4, bars_bytes = 512;
constexpr int out_bytes = 64 * 2 * strip, staging_bytes = 2 * out_bytes; // of a warpgroup's gradients on their way out: two strips of 64 rows

// Where an address is on a map of all memory.
__device__ __forceinline__ int map_x(uint64_t address) { return int(address % map_step / 2); }
__device__ __forceinline__ int map_z(uint64_t address) { return int(address / map_step) - 1; }

__device__ __forceinline__ int ceil(int n, int by) { return (n + by - 1) / by; }

// Header says what a stage is: which piece, how many segments, and whether they are the piece's first or last.
struct Header {
    int group; // -1 after the last
    int flags;
    int row, column;
    __device__ __forceinline__ int matrix() const { return flags & 3; } // 0 gate, 1 up, 2 down
    __device__ __forceinline__ bool first() const { return flags & 4; }
    __device__ __forceinline__ bool last() const { return flags & 8; }
    __device__ __forceinline__ int segments() const { return flags >> 4; }
};

struct Ring {
    uint32_t base, bars;
    int stage = 0;
    uint32_t phase = 0;

    __device__ __forceinline__ explicit Ring(const void *shared) {
        base = (ptx::shared_address(shared) + 1023) & ~1023u;
        bars = base + stages * stage_bytes + 2 * staging_bytes;
    }
    __device__ __forceinline__ uint32_t laid() const { return base + stage * stage_bytes; }
    __device__ __forceinline__ uint32_t gathered() const { return laid() + laid_bytes; }
    __device__ __forceinline__ uint32_t full() const { return bars + 8 * stage; }
    __device__ __forceinline__ uint32_t empty() const { return bars + 64 + 8 * stage; }
    __device__ __forceinline__ uint32_t header() const { return bars + 128 + 16 * stage; }
    __device__ __forceinline__ uint32_t piece(int turn) const { return bars + 256 + 4 * turn; }
    __device__ __forceinline__ uint32_t staging(int group) const { return base + stages * stage_bytes + group * staging_bytes; }
    __device__ __forceinline__ void next() {
        if (++stage == stages) stage = 0, phase ^= 1;
    }
    __device__ __forceinline__ void init() const {
        if (threadIdx.x == 0) {
            for (int s = 0; s < stages; s++) {
                ptx::barrier_init(bars + 8 * s, producers + 1);
                ptx::barrier_init(bars + 64 + 8 * s, consumers / 32);
            }
            ptx::barrier_init_fence();
        }
        __syncthreads();
    }
};

} // namespace fold
