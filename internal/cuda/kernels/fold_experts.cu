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
constexpr int half_columns = 128, staging_pitch = 2 * half_columns + 16, wide_pitch = 4 * half_columns + 32; // of rows of BF16 and FP32
constexpr int staging_bytes = 64 * staging_pitch;                                                                 // for each warpgroup
static_assert(4 * 8 * wide_pitch <= staging_bytes);
constexpr int ahead_segments = 4; // that their rows' places are asked for before they are used
constexpr int bars_bytes = 512;                                                             // barriers, headers, pieces

// Header says what a stage is: which piece, and whether it is the piece's first or last.
struct Header {
    int group; // -1 after the last
    int flags; // the matrix (0 gate, 1 up, 2 down), then first, last
    int row, column;
    __device__ __forceinline__ int matrix() const { return flags & 3; }
    __device__ __forceinline__ bool first() const { return flags & 4; }
    __device__ __forceinline__ bool last() const { return flags & 8; }
};

template <int stages_, int blocks_> struct Ring {
    static constexpr int stages = stages_, blocks = blocks_; // that share what is laid
    static constexpr int posts = 16;                         // more than a block can be ahead of the other
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
    __device__ __forceinline__ uint32_t piece(int turn) const { return bars + 256 + 4 * (turn & 1); }
    __device__ __forceinline__ uint32_t post(int turn) const { return bars + 384 + 8 * (turn % posts); }
    __device__ __forceinline__ uint32_t staging(int group) const { return bars + bars_bytes + group * staging_bytes; }
    __device__ __forceinline__ void next() {
        if (++stage == stages) stage = 0, phase ^= 1;
    }
    __device__ __forceinline__ void init() const {
        static_assert(stages <= 8, "bars_bytes");
        if (threadIdx.x == 0) {
            for (int s = 0; s < stages; s++) {
                ptx::barrier_init(bars + 8 * s, producers + 1);
                ptx::barrier_init(bars + 64 + 8 * s, blocks * consumers / 32);
            }
            for (int i = 0; i < posts; i++) ptx::store_shared8(post(i), 0);
            ptx::barrier_init_fence();
        }
        if constexpr (blocks > 1) ptx::cluster_sync();
        else __syncthreads();
    }
};

__device__ __forceinline__ int ceil(int n, int by) { return (n + by - 1) / by; }

// direct brings 64 laid columns of 32 rows that follow one another, by the copy engine: to this block, or to both of a pair.
template <int blocks> __device__ __forceinline__ void direct(const TensorMap *all, uint32_t to, uint32_t full, const bf16_t *from) {
    uint64_t address = reinterpret_cast<uint64_t>(from);
    int x = int(address % map_step / 2), z = int(address / map_step) - 1;
    if constexpr (blocks == 1) ptx::tensor_copy3(to, all, full, x, 0, z);
    else ptx::tensor_copy3_to(to, all, full, x, 0, z, (1 << blocks) - 1);
}

// produce fills stages: one for each segment of each piece that the block takes, and one of zeros for a piece without rows.
template <class R> __device__ __forceinline__ void produce(const FoldParams &p, R ring) {
    int thread = threadIdx.x - consumers, warp = thread >> 5, lane = thread & 31;
    uint32_t rank = R::blocks > 1 ? ptx::cluster_rank() : 0;
    int gathered_blocks = ceil(p.hidden, R::blocks * gathered_columns); // of as many blocks
    int routed_pieces = ceil(p.width, laid_columns) * gathered_blocks, shared_pieces = ceil(p.shared_width, laid_columns) * gathered_blocks;
    int shared_all = p.state->shared ? 3 * shared_pieces : 0, all = shared_all + p.state->groups * 3 * routed_pieces;
    auto nothing = reinterpret_cast<const bf16_t *>(p.rows); // an address to read no bytes from
    auto header = [&](Header h) {
        ptx::store_shared16(ring.header(), make_uint4(h.group, h.flags, h.row, h.column));
    };
    int piece = blockIdx.x / R::blocks;
    for (int turn = 1; piece < all; turn++) {
        int ahead = thread == 0 && rank == 0 ? atomicAdd(&p.state->next, 1) : 0;
        bool is_shared = piece < shared_all; // the longest stream first
        int pieces = is_shared ? shared_pieces : routed_pieces, i = is_shared ? piece : piece - shared_all;
        int4 work = *reinterpret_cast<const int4 *>(p.order + (is_shared ? p.experts : i / (3 * pieces)));
        int rows = work.y, segments = ceil(rows, segment_rows);
        i %= 3 * pieces;
        int matrix = i / pieces, laid = i % pieces / gathered_blocks * laid_columns, gathered = (i % gathered_blocks * R::blocks + rank) * gathered_columns;
        Header h{work.x, 0, matrix < 2 ? laid : gathered, matrix < 2 ? gathered : laid};

        int width = is_shared ? p.shared_pitch : p.width_pitch;
        // Lanes 0 to 7 know where the warp's eight laid rows lie, lanes 8 to 15 those gathered, lanes 16 and 17 the segment's first
        // and last laid row. They are asked for some segments ahead.
        const bf16_t *const *index = p.rows + (lane / 8 == 1 ? (matrix < 2 ? part_x : part_dy) : part_dgate + matrix) * p.places + work.z;
        int mine = lane < 16 ? 8 * warp + (lane & 7) : lane == 16 ? 0 : segment_rows - 1;
        auto look = [&](int s) { return lane < 18 && s * segment_rows + mine < rows ? uint64_t(index[s * segment_rows + mine]) : 0; };
        uint64_t places[ahead_segments];
#pragma unroll
        for (int k = 0; k < ahead_segments; k++) places[k] = look(k);
        int laid_column = laid + lane * 8, gathered_column = gathered + (lane & 15) * 8;
        bool laid_inside = laid_column < width, gathered_inside = gathered_column < p.hidden_pitch;
        int strips = min(laid_columns / strip, ceil(width - laid, strip));
        uint32_t laid_to = (lane >> 3) * strip_bytes + 8 * warp * 128, gathered_to = ((lane & 15) >> 3) * strip_bytes + 8 * warp * 128;

        auto fill = [&](int s, uint64_t row) {
            h.flags = matrix | (s == 0) << 2 | (s + 1 >= segments) << 3;
            uint64_t first = __shfl_sync(~0u, row, 16), last = __shfl_sync(~0u, row, 17);
            bool together = width % strip == 0 && last - first == uint64_t(segment_rows - 1) * 2 * width;
            ptx::barrier_wait(ring.empty(), ring.phase ^ 1);
            if (thread == 0) {
                header(h);
                if (together && !(p.experiment & 4)) ptx::barrier_expect(ring.full(), strips * strip_bytes);
                else ptx::barrier_arrive(ring.full());
            }
            if (together && lane == 0 && warp < strips && warp % R::blocks == rank && !(p.experiment & 4)) // a strip to a warp, a half to each of a pair
                direct<R::blocks>(is_shared ? &p.shared : &p.routed, ring.laid() + warp * strip_bytes, ring.full(), reinterpret_cast<const bf16_t *>(first) + laid + warp * strip);
            if (!together) {
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
        };
        for (int s = 0; s < max(segments, 1); s += ahead_segments) {
#pragma unroll
            for (int k = 0; k < ahead_segments; k++) {
                if (s + k >= max(segments, 1)) break;
                fill(s + k, places[k]);
                places[k] = look(s + k + ahead_segments);
            }
        }
        if (thread == 0) {
            if constexpr (R::blocks > 1) {
                if (rank == 0) {
                    ptx::store_shared8(ring.post(turn), uint64_t(turn) << 32 | ahead);
                } else {
                    uint32_t from = ptx::address_in(ring.post(turn), 0);
                    uint64_t v;
                    while ((v = ptx::load_cluster8(from)) >> 32 != turn) {}
                    ahead = int(v);
                }
            }
            ptx::store_shared4(ring.piece(turn), ahead);
        }
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

__device__ __forceinline__ void load(float *acc, const float *from, const Place &at, int x) {
#pragma unroll
    for (int m = 0; m < 2; m++) {
        if (pairs(at, m, from)) {
            each_pair(at, m, [&](int i, int64_t offset) {
                float2 v = x & 128 ? __ldcg(reinterpret_cast<const float2 *>(from + offset)) : __ldcs(reinterpret_cast<const float2 *>(from + offset));
                acc[i] = v.x, acc[i + 1] = v.y;
            });
        } else {
            each_inside(at, m, [&](int i, int64_t offset) { acc[i] = from[offset]; });
        }
    }
}

// store in FP32 goes through shared memory, eight rows of a warp at a time, so that 512 bytes of a row are written together.
__device__ __forceinline__ void store(const float *acc, float *to, const Place &at, uint32_t staging) {
    bool even = at.columns % 4 == 0 && reinterpret_cast<uintptr_t>(to) % 16 == 0;
    staging += at.warp * 8 * wide_pitch;
#pragma unroll
    for (int m = 0; m < 2; m++) {
        if (!at.whole(m) || !even) {
            each_inside(at, m, [&](int i, int64_t offset) { to[offset] = acc[i]; });
            continue;
        }
        float *corner = to + int64_t(at.row[m] + at.warp * 16) * at.columns + at.column[m] + 4 * at.lane;
#pragma unroll
        for (int eight = 0; eight < 2; eight++) {
            __syncwarp();
#pragma unroll
            for (int j = 0; j < half; j += 4)
                ptx::store_shared8(staging + at.lane / 4 * wide_pitch + j / 4 * 32 + at.lane % 4 * 8, acc[m * half + j + 2 * eight], acc[m * half + j + 2 * eight + 1]);
            __syncwarp();
#pragma unroll
            for (int i = 0; i < 8; i++)
                __stcs(reinterpret_cast<uint4 *>(corner + int64_t(8 * eight + i) * at.columns), ptx::load_shared16(staging + i * wide_pitch + 16 * at.lane));
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
    int warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31;
    auto read = [](uint32_t from) {
        uint4 v = ptx::load_shared16(from);
        return Header{int(v.x), int(v.y), int(v.z), int(v.w)};
    };
    auto place = [&](Header h) { // gate and up: laid columns by gathered ones; down: gathered by laid
        bool down = h.matrix() == 2;
        int width = h.group == p.experts ? p.shared_width : p.width;
        Place at{down ? p.hidden : width, down ? width : p.hidden, warp, lane};
#pragma unroll
        for (int m = 0; m < 2; m++) {
            at.row[m] = h.row + (down ? group : 2 * group + m) * 64;
            at.column[m] = h.column + (down ? m * half_columns : 0);
        }
        return at;
    };
    float acc[2 * half] = {}, segment[2][half / 2] = {};
    for (;;) {
        ptx::barrier_wait(ring.full(), ring.phase);
        Header h = read(ring.header());
        if (h.group < 0) return;
        bool down = h.matrix() == 2;
        if (h.first()) {
#pragma unroll
            for (int i = 0; i < 2 * half; i++) acc[i] = 0.f;
            if (p.sums != nullptr && !(p.experiment & 256)) load(acc, p.sums[3 * h.group + h.matrix()], place(h), p.experiment);
        }
        if (p.sums != nullptr && h.last() && !(p.experiment & 16)) {
            R then = ring;
            then.next();
            if (ptx::barrier_test(then.full(), then.phase)) {
                Header n = read(then.header());
                if (n.group >= 0) prefetch(p.sums[3 * n.group + n.matrix()], place(n));
            }
        }
        ptx::fence_async(); // gathered rows are ordinary writes
        if (!(p.experiment & 1)) {
        // Quarters of 64 columns, one multiplied while the one before is added.
        auto multiply = [&](int quarter) {
            uint64_t a = tile(down ? ring.gathered() + group * strip_bytes : ring.laid() + (2 * group + quarter / 2) * strip_bytes);
            uint64_t b = tile(down ? ring.laid() + quarter * strip_bytes : ring.gathered() + quarter % 2 * strip_bytes);
            ptx::wgmma_fence();
            wgmma<strip, 1, 1>::step(segment[quarter % 2], a, b, 0);
            wgmma<strip, 1, 1>::step(segment[quarter % 2], a + 128, b + 128, 1);
            ptx::wgmma_commit();
        };
        multiply(0);
#pragma unroll
        for (int q = 0; q < 4; q++) {
            if (q < 3) {
                multiply(q + 1);
                ptx::wgmma_wait<1>();
            } else {
                ptx::wgmma_wait<0>();
            }
#pragma unroll
            for (int i = 0; i < half / 2; i++) acc[q * half / 2 + i] = __fadd_rn(acc[q * half / 2 + i], segment[q % 2][i]);
        }
        }
        __syncwarp();
        if (lane == 0) {
            if constexpr (R::blocks > 1) ptx::barrier_arrive_at(ptx::address_in(ring.empty(), 0)), ptx::barrier_arrive_at(ptx::address_in(ring.empty(), 1));
            else ptx::barrier_arrive(ring.empty());
        }
        ring.next();
        if (h.last()) {
            T *to = static_cast<T *>(p.out[3 * h.group + h.matrix()]);
            if constexpr (sizeof(T) == 4) { if (!(p.experiment & 512) || acc[0] == 3.33f) store(acc, to, place(h), ring.staging(group)); }
            else store(acc, to, place(h), ring.staging(group), group);
        }
    }
}

template <class T, int stages, int blocks> __device__ __forceinline__ void experts(const FoldParams &p) {
    extern __shared__ char shared[];
    Ring<stages, blocks> ring(shared);
    ring.init();
    ptx::wait_before();
    ptx::start_next();
    if (threadIdx.x >= consumers) {
        ptx::registers_down<72>();
        ptx::fence_async_memory();
        produce(p, ring);
    } else {
        ptx::registers_up<216>();
        consume<T>(p, ring);
    }
    if constexpr (blocks > 1) ptx::cluster_sync(); // nobody leaves while the other may write to it
}

} // namespace fold

// The stages must be those of fold.go.
extern "C" __global__ void __launch_bounds__(fold::threads, 1) fold_experts_f32(const __grid_constant__ FoldParams p) {
    fold::experts<float, 7, 1>(p);
}
extern "C" __global__ void __launch_bounds__(fold::threads, 1) fold_experts_bf16(const __grid_constant__ FoldParams p) {
    fold::experts<bf16_t, 7, 1>(p);
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(fold::threads, 1) fold_experts_pair_f32(const __grid_constant__ FoldParams p) {
    fold::experts<float, 7, 2>(p);
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(fold::threads, 1) fold_experts_pair_bf16(const __grid_constant__ FoldParams p) {
    fold::experts<bf16_t, 7, 2>(p);
}
