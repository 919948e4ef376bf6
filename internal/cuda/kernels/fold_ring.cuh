// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The pipeline of the weights' gradients. A stage holds one or two segments of a stream: 32 rows each of the laid operand (dg, du, hw:
// 256 columns to a piece) and of the gathered one (x, dy: 128 columns), in strips of 64 columns, swizzled over 128 bytes. Behind the
// stages there is room for gradients on their way.

#pragma once

#include "fold.cuh"
#include "ptx.cuh"

namespace fold {

constexpr int consumers = 256, producers = 128, threads = consumers + producers;
constexpr int laid_columns = 256, gathered_columns = 128; // of a piece
constexpr int strip = 64, hand_segments = 2;            // that are multiplied in one go
constexpr int segment_bytes = segment_rows * 2 * strip; // of a strip
constexpr int stages = 4, table_bytes = 128, bars_bytes = 1536; // with the producers' tables
static_assert(bars_bytes == 512 + producers / 32 * 2 * table_bytes);
constexpr int out_rows = 16, out_bytes = out_rows * 2 * strip; // of a strip of BF16 gradients: a warp's rows of a block
constexpr int slab_rows = 16, slab_bytes = slab_rows * 512;    // of FP32 sums: the same by 128 columns, in four strips

// Where an address is on a map of all memory.
__device__ __forceinline__ int map_x(uint64_t address) { return int(address % map_step / 2); }
__device__ __forceinline__ int map_z(uint64_t address) { return int(address / map_step) - 1; }

__device__ __forceinline__ int ceil(int n, int by) { return (n + by - 1) / by; }

// Header says what a stage is: which piece, how many segments from it on are multiplied in one go, and whether they are the piece's first
// or last.
struct Header {
    static constexpr int none = -1; // the group after the last
    int what;                       // the group, and eight bits
    uint32_t where;                 // the piece's first row and column, by 64
    static __device__ __forceinline__ Header of(int group, int matrix, int row, int column) {
        return Header{group << 8 | matrix, uint32_t(row / 64) << 16 | uint32_t(column / 64)};
    }
    static __device__ __forceinline__ Header last_of_all() { return of(none, 0, 0, 0); }
    __device__ __forceinline__ void stage(bool first, bool last, int segments) {
        what |= first << 2 | last << 3 | first << 4 | segments << 5;
    }
    __device__ __forceinline__ int group() const { return what >> 8; }
    __device__ __forceinline__ int row() const { return int(where >> 16) * 64; }
    __device__ __forceinline__ int column() const { return int(where & 0xFFFF) * 64; }
    __device__ __forceinline__ int matrix() const { return what & 3; } // 0 gate, 1 up, 2 down
    __device__ __forceinline__ bool first() const { return what & 4; }
    __device__ __forceinline__ bool last() const { return what & 8; }
    // asks says that the next piece's sums are to be asked for after these segments, the first; with a bit of its own, so that the
    // compiler does not keep what that takes over the products.
    __device__ __forceinline__ bool asks() const { return what & 16; }
    __device__ __forceinline__ int segments() const { return what >> 5 & 7; }
};
// Ring is of a kernel that writes gradients as T. BF16 has two segments to a stage; FP32 has one, and so much more room behind.
template <class T> struct Ring {
    static constexpr bool sums = sizeof(T) == 4;
    static constexpr int segments = sums ? 1 : hand_segments, strip_bytes = segments * segment_bytes;
    static constexpr int laid_bytes = laid_columns / strip * strip_bytes, stage_bytes = laid_bytes + gathered_columns / strip * strip_bytes;
    static constexpr int warp_room = 2 * (sums ? slab_bytes : out_bytes), room_bytes = consumers / 32 * warp_room;

    uint32_t base, bars;
    int stage = 0;
    uint32_t phase = 0;

    __device__ __forceinline__ explicit Ring(const void *shared) {
        base = (ptx::shared_address(shared) + 1023) & ~1023u;
        bars = base + stages * stage_bytes + room_bytes;
    }
    __device__ __forceinline__ uint32_t laid() const { return base + stage * stage_bytes; }
    __device__ __forceinline__ uint32_t gathered() const { return laid() + laid_bytes; }
    __device__ __forceinline__ uint32_t full() const { return bars + 8 * stage; }
    __device__ __forceinline__ uint32_t empty() const { return bars + 64 + 8 * stage; }
    __device__ __forceinline__ uint32_t header() const { return bars + 128 + 32 * stage; }
    __device__ __forceinline__ uint32_t next_header() const { return header() + 16; } // of the piece after this one
    __device__ __forceinline__ uint32_t piece(int turn) const { return bars + 256 + 4 * turn; }
    __device__ __forceinline__ uint32_t arrived(int warp) const { return bars + 384 + 16 * warp; } // its slabs, a barrier each
    // Where a producer warp's gathered rows of segment k of a stage lie: of two stages by turns.
    __device__ __forceinline__ uint32_t table(int warp, int turn, int k) const { return bars + 512 + (2 * warp + turn) * table_bytes + k * 64; }
    __device__ __forceinline__ uint32_t room(int warp) const { return base + stages * stage_bytes + warp * warp_room; }
    __device__ __forceinline__ void next() {
        if (++stage == stages) stage = 0, phase ^= 1;
    }
    __device__ __forceinline__ void init() const {
        if (threadIdx.x == 0) {
            for (int s = 0; s < stages; s++) {
                ptx::barrier_init(bars + 8 * s, producers + 1);
                ptx::barrier_init(bars + 64 + 8 * s, consumers / 32);
            }
            for (int i = 0; sums && i < 2 * consumers / 32; i++) ptx::barrier_init(bars + 384 + 8 * i, 1);
            ptx::barrier_init_fence();
        }
        __syncthreads();
    }
};

static_assert(stages * Ring<float>::stage_bytes + Ring<float>::room_bytes == stages * Ring<bf16_t>::stage_bytes + Ring<bf16_t>::room_bytes,
              "foldShared is of both");

} // namespace fold
