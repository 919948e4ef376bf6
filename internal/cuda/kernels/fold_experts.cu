// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The gradients of the experts' weights (R11): dWg = dg^T x, dWu = du^T x, dWd = dy^T hw over each group's stream of rows. A
// segment of 32 rows is one product from +0; its FP32 result is added to sums that stay in registers until the stream's end.
// Blocks are persistent and take pieces of a gradient as they become free: pieces are of very different length, and who makes
// one changes no bit. Both operands lie with their rows next to one another, which the tensor cores read as they are. One of them is
// gathered by token (x, dy: 128 columns to a piece), the other laid in the plan's order (dg, du, hw: 256 columns). Four producer
// warps fill stages by the index of fold_index.cu; two warpgroups multiply a half of the piece each, so that one adds while the
// other multiplies.

#include "arith.cuh"
#include "fold.cuh"
#include "wgmma_gen.cuh"

namespace fold {

constexpr int consumers = 256, producers = 128, threads = consumers + producers;
constexpr int laid_columns = 256, gathered_columns = 128; // of a piece
constexpr int strip = 64, strip_bytes = segment_rows * 2 * strip; // columns of an operand that lie together, swizzled over 128 bytes
constexpr int laid_bytes = laid_columns / strip * strip_bytes, stage_bytes = laid_bytes + gathered_columns / strip * strip_bytes;
constexpr int half_columns = 128, staging_pitch = 2 * half_columns + 16, staging_bytes = 64 * staging_pitch; // of BF16, for each warpgroup
constexpr int bars_bytes = 512;                                                           // barriers, headers, pieces

// Header says what a stage is: which piece, and whether it is the piece's first or last.
struct Header {
    int group; // -1 after the last
    int flags; // the matrix (0 gate, 1 up, 2 down), then first, last
    int row, column;
    __device__ __forceinline__ int matrix() const { return flags & 3; }
    __device__ __forceinline__ bool first() const { return flags & 4; }
    __device__ __forceinline__ bool last() const { return flags & 8; }
};

template <int stages_> struct Ring {
    static constexpr int stages = stages_;
    uint32_t base, bars;
    int stage = 0;
    uint32_t phase = 0;

    __device__ __forceinline__ explicit Ring(const void *shared) {
        base = (ptx::shared_address(shared) + 1023) & ~1023u;
        bars = base + stages * stage_bytes;
    }
    __device__ __forceinline__ uint32_t laid() const { return base + stage * stage_bytes; }
    __device__ __forceinline__ uint32_t gathered() const { return laid() + laid_bytes; }
    __device__ __forceinline__ uint32_t full() const { return bars + 8 * stage; }
    __device__ __forceinline__ uint32_t empty() const { return bars + 64 + 8 * stage; }
    __device__ __forceinline__ uint32_t header() const { return bars + 128 + 16 * stage; }
    __device__ __forceinline__ uint32_t piece(int turn) const { return bars + 256 + 4 * turn; }
    __device__ __forceinline__ uint32_t staging(int group) const { return bars + bars_bytes + group * staging_bytes; }
    __device__ __forceinline__ void next() {
        if (++stage == stages) stage = 0, phase ^= 1;
    }
    __device__ __forceinline__ void init() const {
        static_assert(stages <= 8, "bars_bytes");
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

__device__ __forceinline__ int ceil(int n, int by) { return (n + by - 1) / by; }

// direct brings strips of laid columns, of 32 rows that follow one another from first on, by the copy engine.
__device__ __forceinline__ void direct(const TensorMap *all, uint32_t to, uint32_t full, const bf16_t *first, int column, int width) {
    int strips = min(laid_columns / strip, ceil(width - column, strip));
    ptx::barrier_expect(full, strips * strip_bytes);
    for (int i = 0; i < strips; i++) {
        uint64_t address = reinterpret_cast<uint64_t>(first + column + i * strip);
        ptx::tensor_copy3(to + i * strip_bytes, all, full, int(address % map_step / 2), 0, int(address / map_step) - 1);
    }
}

// produce fills stages: one for each segment of each piece that the block takes, and one of zeros for a piece without rows.
template <class R> __device__ __forceinline__ void produce(const FoldParams &p, R ring) {
    int thread = threadIdx.x - consumers, warp = thread >> 5, lane = thread & 31;
    int gathered_blocks = ceil(p.hidden, gathered_columns);
    int routed_pieces = ceil(p.width, laid_columns) * gathered_blocks, shared_pieces = ceil(p.shared_width, laid_columns) * gathered_blocks;
    int shared_all = p.state->shared ? 3 * shared_pieces : 0, all = shared_all + p.state->groups * 3 * routed_pieces;
    auto nothing = reinterpret_cast<const bf16_t *>(p.rows); // an address to read no bytes from
    auto header = [&](Header h) {
        ptx::store_shared16(ring.header(), make_uint4(h.group, h.flags, h.row, h.column));
    };
    int piece = blockIdx.x;
    for (int turn = 0; piece < all; turn ^= 1) {
        int ahead = thread == 0 ? atomicAdd(&p.state->next, 1) : 0;
        bool is_shared = piece < shared_all; // the longest stream first
        int pieces = is_shared ? shared_pieces : routed_pieces, i = is_shared ? piece : piece - shared_all;
        Header h;
        h.group = is_shared ? p.experts : p.order[i / (3 * pieces)];
        i %= 3 * pieces;
        int matrix = i / pieces, laid = i % pieces / gathered_blocks * laid_columns, gathered = i % gathered_blocks * gathered_columns;
        h.row = matrix < 2 ? laid : gathered, h.column = matrix < 2 ? gathered : laid;

        int width = is_shared ? p.shared_pitch : p.width_pitch;
        int rows = p.count[h.group], segments = p.whole ? rows / segment_rows : ceil(rows, segment_rows);
        if (p.whole) rows = segments * segment_rows;
        // Lanes 0 to 7 know where the warp's eight laid rows lie, lanes 8 to 15 those gathered, lanes 16 and 17 the segment's first
        // and last laid row.
        const bf16_t *const *index = p.rows + (lane / 8 == 1 ? (matrix < 2 ? part_x : part_dy) : part_dgate + matrix) * p.places + p.start[h.group];
        int mine = lane < 16 ? 8 * warp + (lane & 7) : lane == 16 ? 0 : segment_rows - 1;
        auto look = [&](int s) { return lane < 18 && s * segment_rows + mine < rows ? uint64_t(index[s * segment_rows + mine]) : 0; };
        uint64_t row = look(0);
        int laid_column = laid + lane * 8, gathered_column = gathered + (lane & 15) * 8;
        bool laid_inside = laid_column < width, gathered_inside = gathered_column < p.hidden_pitch;
        uint32_t laid_to = (lane >> 3) * strip_bytes + 8 * warp * 128, gathered_to = ((lane & 15) >> 3) * strip_bytes + 8 * warp * 128;

        for (int s = 0; s < max(segments, 1); s++) {
            h.flags = matrix | (s == 0) << 2 | (s + 1 >= segments) << 3;
            uint64_t then = s + 1 < segments ? look(s + 1) : 0, first = __shfl_sync(~0u, row, 16), last = __shfl_sync(~0u, row, 17);
            bool together = p.direct && width % strip == 0 && last - first == uint64_t(segment_rows - 1) * 2 * width && !(p.experiment & 8);
            ptx::barrier_wait(ring.empty(), ring.phase ^ 1);
            if (thread == 0) {
                header(h);
                if (together && !(p.experiment & 4)) direct(is_shared ? &p.shared : &p.routed, ring.laid(), ring.full(), reinterpret_cast<const bf16_t *>(first), laid, width);
                else ptx::barrier_arrive(ring.full());
            }
            if (!together && !(p.experiment & 4)) {
#pragma unroll
                for (int r = 0; r < 8; r++) {
                    auto from = reinterpret_cast<const bf16_t *>(__shfl_sync(~0u, row, r));
                    bool is = from != nullptr && laid_inside; // rows past the last are zeros
                    ptx::copy16(ring.laid() + laid_to + r * 128 + (((lane & 7) ^ r) << 4), is ? from + laid_column : nothing, is ? 16 : 0);
                }
            }
            if (!(p.experiment & 2)) {
#pragma unroll
            for (int i = 0; i < 8; i += 2) {
                int r = i + (lane >> 4);
                auto from = reinterpret_cast<const bf16_t *>(__shfl_sync(~0u, row, 8 + r));
                bool is = from != nullptr && gathered_inside;
                ptx::copy16(ring.gathered() + gathered_to + r * 128 + (((lane & 7) ^ r) << 4), is ? from + gathered_column : nothing, is ? 16 : 0);
            }
            }
            ptx::copy_arrive(ring.full());
            ring.next();
            row = then;
        }
        if (thread == 0) ptx::store_shared4(ring.piece(turn), uint32_t(ahead));
        ptx::group_sync(3, producers);
        piece = ptx::load_shared4(ring.piece(turn));
    }
    ptx::barrier_wait(ring.empty(), ring.phase ^ 1);
    if (thread == 0) {
        header(Header{-1, 0, 0, 0});
        ptx::barrier_arrive(ring.full());
    }
    ptx::copy_arrive(ring.full());
    ptx::copy_wait();
}

// A warpgroup's sums are two blocks of 64 rows by 128 columns, below or beside one another. With q = lane/4 and r = lane%4,
// acc[64m+4j] and the next are row 16*warp+q of block m by columns 8j+2r and 8j+2r+1, acc[64m+4j+2] and the next the same of the
// row eight further.
constexpr int half = 64;

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

__device__ __forceinline__ void store(const float *acc, float *to, const Place &at) {
#pragma unroll
    for (int m = 0; m < 2; m++) {
        if (pairs(at, m, to)) {
            each_pair(at, m, [&](int i, int64_t offset) { __stcs(reinterpret_cast<float2 *>(to + offset), make_float2(acc[i], acc[i + 1])); });
        } else {
            each_inside(at, m, [&](int i, int64_t offset) { to[offset] = acc[i]; });
        }
    }
}

// store in BF16 goes through shared memory, a block at a time, so that 256 bytes of a row are written together.
__device__ __forceinline__ void store(const float *acc, bf16_t *to, const Place &at, uint32_t staging, int group) {
    int thread = threadIdx.x & 127, lane = at.lane;
    bool whole = at.columns % 8 == 0 && reinterpret_cast<uintptr_t>(to) % 16 == 0;
    uint32_t mine = staging + (at.warp * 16 + lane % 16) * staging_pitch + lane / 16 * 16;
#pragma unroll
    for (int m = 0; m < 2; m++) {
        if (at.row[m] >= at.rows || at.column[m] >= at.columns) break;
        ptx::group_sync(1 + group, 128);
#pragma unroll
        for (int j = 0; j < half; j += 8) {
            const float *v = acc + m * half + j;
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
            ptx::store_matrix4(mine + j / 4 * 16, r[0], r[1], r[2], r[3]);
        }
        ptx::group_sync(1 + group, 128);
        int column = at.column[m] + thread % 16 * 8;
        for (int i = thread / 16; i < min(64, at.rows - at.row[m]); i += 8) {
            uint4 v = ptx::load_shared16(staging + i * staging_pitch + thread % 16 * 16);
            bf16_t *dst = to + int64_t(at.row[m] + i) * at.columns + column;
            if (whole) {
                if (column < at.columns) __stcs(reinterpret_cast<uint4 *>(dst), v);
            } else {
                uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                for (int k = 0; k < 8; k++)
                    if (column + k < at.columns) dst[k] = bf16_t(words[k / 2] >> 16 * (k % 2));
            }
        }
    }
}

// tile describes an operand whose rows lie next to one another, in strips; 16 terms further is 128 further.
__device__ __forceinline__ uint64_t tile(uint32_t address) {
    return uint64_t(address >> 4 & 0x3FFF) | uint64_t(strip_bytes >> 4) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

// T is what the gradients are written as: float, which are added to in place; or bf16_t.
template <class T, class R> __device__ __forceinline__ void consume(const FoldParams &p, R ring) {
    int group = threadIdx.x >> 7;
    Place at;
    at.warp = threadIdx.x >> 5 & 3, at.lane = threadIdx.x & 31;
    float acc[2 * half] = {}, segment[half] = {};
    for (;;) {
        ptx::barrier_wait(ring.full(), ring.phase);
        uint4 v = ptx::load_shared16(ring.header());
        Header h{int(v.x), int(v.y), int(v.z), int(v.w)};
        if (h.group < 0) return;
        bool down = h.matrix() == 2; // gate and up: laid columns by gathered ones; down: gathered by laid
        int width = h.group == p.experts ? p.shared_width : p.width;
        at.rows = down ? p.hidden : width, at.columns = down ? width : p.hidden;
#pragma unroll
        for (int m = 0; m < 2; m++) {
            at.row[m] = h.row + (down ? group : 2 * group + m) * 64;
            at.column[m] = h.column + (down ? m * half_columns : 0);
        }
        int of = 3 * h.group + h.matrix();
        if (h.first()) {
#pragma unroll
            for (int i = 0; i < 2 * half; i++) acc[i] = 0.f;
            if (p.sums != nullptr) load(acc, p.sums[of], at);
        }
        ptx::fence_async(); // gathered rows are ordinary writes
        if (!(p.experiment & 1)) {
#pragma unroll
        for (int m = 0; m < 2; m++) {
            uint64_t a = tile(down ? ring.gathered() + group * strip_bytes : ring.laid() + (2 * group + m) * strip_bytes);
            uint64_t b = tile(down ? ring.laid() + 2 * m * strip_bytes : ring.gathered());
            ptx::wgmma_fence();
            wgmma<half_columns, 1, 1>::step(segment, a, b, 0);
            wgmma<half_columns, 1, 1>::step(segment, a + 128, b + 128, 1);
            ptx::wgmma_commit();
            ptx::wgmma_wait<0>();
#pragma unroll
            for (int i = 0; i < half; i++) acc[m * half + i] = __fadd_rn(acc[m * half + i], segment[i]);
        }
        }
        __syncwarp();
        if (at.lane == 0) ptx::barrier_arrive(ring.empty());
        ring.next();
        if (h.last()) {
            T *to = static_cast<T *>(p.out[of]);
            if constexpr (sizeof(T) == 4) store(acc, to, at);
            else store(acc, to, at, ring.staging(group), group);
        }
    }
}

template <class T, int stages> __device__ __forceinline__ void experts(const FoldParams &p) {
    extern __shared__ char shared[];
    Ring<stages> ring(shared);
    ring.init();
    ptx::wait_before();
    ptx::start_next();
    if (threadIdx.x >= consumers) {
        ptx::registers_down<56>();
        ptx::fence_async_memory();
        produce(p, ring);
    } else {
        ptx::registers_up<224>();
        consume<T>(p, ring);
    }
}

} // namespace fold

// The stages must be those of fold.go.
extern "C" __global__ void __launch_bounds__(fold::threads, 1) fold_experts_f32(const __grid_constant__ FoldParams p) {
    fold::experts<float, 8>(p);
}
extern "C" __global__ void __launch_bounds__(fold::threads, 1) fold_experts_bf16(const __grid_constant__ FoldParams p) {
    fold::experts<bf16_t, 7>(p);
}
