// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The gradients of the experts' weights (R11): dWg = dg^T x, dWu = du^T x, dWd = dy^T hw over each group's stream of rows. A
// segment of 32 rows is one product from +0; its FP32 result is added to sums that stay in registers until the stream's end.
// Blocks are persistent and take pieces of a gradient as they become free: pieces are of very different length, and who makes
// one changes no bit. Both operands lie with their rows next to one another, which the tensor cores read as they are. One of them is
// gathered by token, the other laid in the plan's order. Four producer warps fill stages by the index of fold_index.cu; two warpgroups
// multiply a half of the piece each.

#include "fold_slabs.cuh"
#include "fold_store.cuh"
#include "wgmma_gen.cuh"

namespace fold {

constexpr int ahead_segments = 4; // that their rows' places are asked for before they are used

// direct brings 64 laid columns of 32 rows that follow one another, by the copy engine.
__device__ __forceinline__ void direct(const TensorMap *all, uint32_t to, uint32_t full, const bf16_t *from) {
    uint64_t address = reinterpret_cast<uint64_t>(from);
    ptx::tensor_copy3(to, all, full, map_x(address), 0, map_z(address));
}

// Producer is one thread of the four warps that fill stages.
template <class T> struct Producer {
    const FoldParams &p;
    Ring<T> ring;
    int thread, warp, lane;

    // Of the piece: the operands' first columns, the laid rows' width and how many strips of them it takes.
    int laid, gathered, width, strips;
    const TensorMap *map;

    __device__ __forceinline__ Producer(const FoldParams &params, const Ring<T> &r) : p(params), ring(r) {
        thread = threadIdx.x - consumers, warp = thread >> 5, lane = thread & 31;
    }

    // start waits for a free stage and gives it a header, and that of the next piece; the copy engine will bring so many bytes.
    __device__ __forceinline__ void start(Header h, Header next, int bytes) const {
        ptx::barrier_wait(ring.empty(), ring.phase ^ 1);
        if (thread != 0) return;
        ptx::store_shared8(ring.header(), uint32_t(h.what), h.where);
        if (ring.sums) ptx::store_shared8(ring.next_header(), uint32_t(next.what), next.where);
        if (bytes > 0) ptx::barrier_expect(ring.full(), bytes);
        else ptx::barrier_arrive(ring.full());
    }
    __device__ __forceinline__ void finish() {
        ptx::copy_arrive(ring.full());
        ring.next();
    }

    // A segment whose laid rows follow one another is brought by the copy engine: fold_index.cu says so in the lowest bit of its first.
    __device__ __forceinline__ static bool together(uint64_t row) { return __ballot_sync(~0u, row & 1) >> first_lane & 1; }

    // share tells the warp where its gathered rows of segment k of a stage lie: in one of two tables by turns.
    __device__ __forceinline__ void share(int turn, int k, uint64_t row) const {
        if (lane / 8 == 1) ptx::store_shared8(ring.table(warp, turn, k) + lane % 8 * 8, uint32_t(row), uint32_t(row >> 32));
    }

    // copy brings eight columns of a row, or zeros; those read no bytes, from any address.
    __device__ __forceinline__ void copy(uint32_t to, uint64_t row, int column, bool is) const {
        ptx::copy16(to, is ? reinterpret_cast<const bf16_t *>(row) + column : reinterpret_cast<const bf16_t *>(p.rows), is ? 16 : 0);
    }
    // bring_laid brings the laid rows of segment k, a strip to a warp by the copy engine or eight rows to a warp.
    __device__ __forceinline__ void bring_laid(int k, uint64_t row, bool is_together) const {
        if (is_together) {
            auto from = reinterpret_cast<const bf16_t *>(row - 1) + laid + warp * strip;
            if (lane == first_lane && warp < strips) direct(map, ring.laid() + warp * ring.strip_bytes + k * segment_bytes, ring.full(), from);
            return;
        }
        int column = laid + lane * 8;
        uint32_t to = ring.laid() + (lane >> 3) * ring.strip_bytes + k * segment_bytes + 8 * warp * 128;
#pragma unroll
        for (int r = 0; r < 8; r++) {
            uint64_t from = __shfl_sync(~0u, row, r);
            copy(to + r * 128 + (((lane & 7) ^ r) << 4), from, column, from != 0 && column < width);
        }
    }
    // bring_gathered brings the gathered rows of segment k that were shared, two of a warp's eight at a time; all says that none is past the
    // last, of which zeros are made.
    __device__ __forceinline__ void bring_gathered(int turn, int k, bool all) const {
        int chunk = lane & 15, first = 2 * warp + (lane >> 4), column = gathered + chunk * 8;
        uint32_t to = ring.gathered() + (chunk >> 3) * ring.strip_bytes + k * segment_bytes + first * 128 + (((chunk & 7) ^ first) << 4);
        uint32_t table = ring.table(warp, turn, k) + (lane >> 4) * 32;
        uint4 two[2] = {ptx::load_shared16(table), ptx::load_shared16(table + 16)};
        uint64_t rows[4];
#pragma unroll
        for (int i = 0; i < 2; i++) rows[2 * i] = uint64_t(two[i].y) << 32 | two[i].x, rows[2 * i + 1] = uint64_t(two[i].w) << 32 | two[i].z;
        bool inside = column < p.hidden_pitch;
        if (all) { // a branch, so that few instructions stand between most copies
#pragma unroll
            for (int i = 0; i < 4; i++) copy(to + i * 8 * 128, rows[i], column, inside);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) copy(to + i * 8 * 128, rows[i], column, inside && rows[i] != 0);
        }
    }

    // Index is where a piece's rows are looked up, of each segment by a lane: lanes 0 to 7 look for the warp's eight laid rows, lanes 8 to
    // 15 for every eighth of those gathered from 2*warp on and then from the next, lane 16 and the rest for the first laid row.
    static constexpr int first_lane = 16;
    struct Index {
        const uint64_t *rows;
        int left; // rows from this lane's on
        __device__ __forceinline__ uint64_t look(int segment) const { return segment * segment_rows < left ? rows[segment * segment_rows] : 0; }
    };

    // run fills stages for the pieces that the block takes; a piece without rows has one stage of zeros. While one is brought, the number of
    // the piece after the next is asked for, and where the next one's rows lie.
    __device__ __forceinline__ void run() {
        int gathered_blocks = ceil(p.hidden, gathered_columns);
        int routed_pieces = ceil(p.width, laid_columns) * gathered_blocks, shared_pieces = ceil(p.shared_width, laid_columns) * gathered_blocks;
        int shared_all = p.state->shared ? 3 * shared_pieces : 0, all = shared_all + p.state->groups * 3 * routed_pieces;
        auto pieces_of = [&](int piece) { return max(1, piece < shared_all ? shared_pieces : routed_pieces); }; // also of a piece past the last
        auto place_of = [&](int piece) { return piece < shared_all ? piece : (piece - shared_all) % (3 * pieces_of(piece)); }; // among its group's
        auto work_of = [&](int piece) { // the longest stream first
            if (piece >= all) return make_int4(0, 0, 0, 0);
            return *reinterpret_cast<const int4 *>(p.order + (piece < shared_all ? p.experts : (piece - shared_all) / (3 * routed_pieces)));
        };
        auto index_of = [&](int piece, int4 work) {
            int m = place_of(piece) / pieces_of(piece), part = lane / 8 == 1 ? (m < 2 ? part_x : part_dy) : part_dgate + m;
            int mine = lane < 8 ? 8 * warp + lane : lane < first_lane ? lane % 4 * 8 + 2 * warp + lane / 4 % 2 : 0;
            return Index{reinterpret_cast<const uint64_t *>(p.rows) + part * p.places + work.z + mine, work.y - mine};
        };
        auto header_of = [&](int piece, int4 work) { // but for what is of a stage
            int i = place_of(piece), m = i / pieces_of(piece);
            i %= pieces_of(piece);
            int laid = i / gathered_blocks * laid_columns, gathered = i % gathered_blocks * gathered_columns;
            return Header::of(piece < all ? work.x : Header::none, m, m < 2 ? laid : gathered, m < 2 ? gathered : laid);
        };
        int piece = blockIdx.x, next = piece + gridDim.x;
        int4 work = work_of(piece);
        Index index = index_of(piece, work);
        uint64_t places[ahead_segments];
#pragma unroll
        for (int k = 0; k < ahead_segments; k++) places[k] = index.look(k);
        for (int turn = 0; piece < all; turn ^= 1) {
            int then = thread == 0 ? atomicAdd(&p.state->next, 1) : 0;
            int4 next_work = work_of(next);
            Header header = header_of(piece, work), next_header = header_of(next, next_work);
            laid = header.matrix() < 2 ? header.row() : header.column(), gathered = header.matrix() < 2 ? header.column() : header.row();
            bool is_shared = piece < shared_all;
            width = is_shared ? p.shared_pitch : p.width_pitch, map = is_shared ? &p.shared : &p.routed;
            strips = min(laid_columns / strip, ceil(width - laid, strip));
            int segments = max(1, ceil(work.y, segment_rows));
            for (int s = 0; s < segments; s += ahead_segments) {
#pragma unroll
                for (int k = 0; k < ahead_segments; k += hand_segments) {
                    int at = s + k, n = min(hand_segments, segments - at);
                    if (n <= 0) break;
                    bool engine[hand_segments] = {together(places[k]), together(places[k + 1]) && n > 1}, is_last = at + n == segments;
                    if (is_last) index = index_of(next, next_work);
                    int from = is_last ? 0 : at + ahead_segments - k; // what slot 0 is to hold
                    uint64_t upcoming[hand_segments] = {index.look(from + k), index.look(from + k + 1)};
                    Header h = header;
                    h.stage(at == 0, is_last, n);
#pragma unroll
                    for (int j = 0; j < hand_segments; j += ring.segments) {
                        if (j >= n) break;
                        start(h, next_header, (ring.segments > 1 ? engine[0] + engine[1] : engine[j]) * strips * segment_bytes);
                        int stage_turn = (k + j) / ring.segments % 2;
#pragma unroll
                        for (int i = 0; i < ring.segments; i++) share(stage_turn, i, places[k + j + i]);
                        __syncwarp();
#pragma unroll
                        for (int i = 0; i < ring.segments; i++) {
                            if (j + i >= n) break;
                            bring_laid(i, places[k + j + i], engine[j + i]);
                            bring_gathered(stage_turn, i, (at + j + i + 1) * segment_rows <= work.y);
                        }
                        finish();
                    }
                    places[k] = upcoming[0], places[k + 1] = upcoming[1];
                    if (is_last) { // the other slots
#pragma unroll
                        for (int j = 0; j < ahead_segments; j++)
                            if (j / hand_segments != k / hand_segments) places[j] = index.look(j);
                    }
                }
            }
            if (thread == 0) ptx::store_shared4(ring.piece(turn), uint32_t(then));
            ptx::group_sync(3, producers);
            piece = next, next = ptx::load_shared4(ring.piece(turn));
            work = next_work;
        }
        start(Header::last_of_all(), Header::last_of_all(), 0);
        finish();
        ptx::copy_wait();
    }
};

// Operands is where a warpgroup's operands lie in a stage, as descriptors of the matrix instruction have it: in units of 16 bytes.
// Gate and up are laid columns by gathered ones; down is gathered ones by laid ones. Quarter q is 64 columns of block q/2.
struct Operands {
    uint32_t a, b, a_step, b_step; // of the first block, and from block to block
    template <class R> __device__ __forceinline__ Operands(const R &, int group, bool down) {
        a = (down ? R::laid_bytes + group * R::strip_bytes : 2 * group * R::strip_bytes) >> 4, a_step = down ? 0 : R::strip_bytes >> 4;
        b = (down ? 0 : R::laid_bytes) >> 4, b_step = down ? 2 * R::strip_bytes >> 4 : 0;
    }
};

// descriptor of an operand whose rows lie next to one another, 64 of them: from 8 terms to the next 8 are 1024 bytes.
__device__ __forceinline__ uint64_t descriptor(uint32_t at) { return uint64_t(1024 >> 4 | 1 << 30) << 32 | at; }

// multiply_add adds the products of some segments to the sums: quarters, one multiplied while the one before is added. The segments lie from
// the ring's stage on, which is full; it waits for a second stage, and gives each back.
template <int segments, class R>
__device__ __forceinline__ void multiply_add(float *acc, float (&product)[2][half / 2], const Operands &of, R &ring, int lane) {
    uint32_t stage = ring.laid() >> 4;
    auto multiply = [&](int i) { // quarter i%4 of segment i/4; 16 terms are 2048 bytes
        int q = i % 4, among = i / 4 % R::segments;
        uint32_t a = of.a + stage + q / 2 * of.a_step + among * (segment_bytes >> 4);
        uint32_t b = of.b + stage + q / 2 * of.b_step + q % 2 * (R::strip_bytes >> 4) + among * (segment_bytes >> 4);
        ptx::wgmma_fence();
        wgmma<strip, 1, 1>::step(product[i % 2], descriptor(a), descriptor(b), 0);
        wgmma<strip, 1, 1>::step(product[i % 2], descriptor(a + 128), descriptor(b + 128), 1);
        ptx::wgmma_commit();
    };
    multiply(0);
#pragma unroll
    for (int i = 0; i < 4 * segments; i++) {
        bool ends = (i + 1) % (4 * R::segments) == 0 || i + 1 == 4 * segments; // the stage
        uint32_t empty = ring.empty();
        if (ends) ring.next();
        if (i + 1 < 4 * segments) {
            if (ends) {
                ptx::barrier_wait(ring.full(), ring.phase);
                ptx::fence_async(); // gathered rows are ordinary writes
                stage = ring.laid() >> 4;
            }
            multiply(i + 1);
            ptx::wgmma_wait<1>();
        } else {
            ptx::wgmma_wait<0>();
        }
        if (ends) {
            __syncwarp();
            if (lane == 0) ptx::barrier_arrive(empty);
        }
#pragma unroll
        for (int k = 0; k < half / 2; k++) acc[i % 4 * half / 2 + k] = __fadd_rn(acc[i % 4 * half / 2 + k], product[i % 2][k]);
    }
}

// Consumer is one thread of the two warpgroups that make gradients as T.
template <class T> struct Consumer {
    const FoldParams &p;
    Ring<T> ring;
    int group, warp, lane; // the warpgroup, and the warp in it
    float acc[2 * half], product[2][half / 2];

    __device__ __forceinline__ Consumer(const FoldParams &params, const Ring<T> &r) : p(params), ring(r), acc{}, product{} {
        group = __shfl_sync(~0u, threadIdx.x >> 7, 0), warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31;
    }
    // read has all lanes read a header, or one lane for all: where there are sums, what a warp reads is written again soon after
    // it has given the stage back, and only of that lane, which gives it back, can be told that it has read before.
    __device__ __forceinline__ Header read(uint32_t from) const {
        Header h = Header::last_of_all();
        if (!ring.sums || lane == 0) ptx::load_shared8(from, h.what, h.where);
        return ring.sums ? Header{__shfl_sync(~0u, h.what, 0), __shfl_sync(~0u, h.where, 0)} : h;
    }
    __device__ __forceinline__ Place place(Header h) const {
        bool down = h.matrix() == 2;
        int width = h.group() == p.experts ? p.shared_width : p.width;
        Place at{down ? p.hidden : width, down ? width : p.hidden, warp, lane};
#pragma unroll
        for (int m = 0; m < 2; m++) {
            at.row[m] = h.row() + (down ? group : 2 * group + m) * 64;
            at.column[m] = h.column() + (down ? m * half_columns : 0);
        }
        return at;
    }
    __device__ __forceinline__ const TensorMap *map(Header h) const {
        return h.matrix() < 2 ? &p.to_hidden : h.group() == p.experts ? &p.to_shared : &p.to_width;
    }
    __device__ __forceinline__ Operands operands(Header h) const { return Operands(ring, group, __shfl_sync(~0u, h.matrix(), 0) == 2); }
    __device__ __forceinline__ void multiply(Header h, const Operands &of) {
        ptx::fence_async(); // gathered rows are ordinary writes
        if (h.segments() > 1) multiply_add<2>(acc, product, of, ring, lane);
        else multiply_add<1>(acc, product, of, ring, lane);
    }

    // write makes BF16 gradients, of sums that begin with p.sums.
    __device__ __forceinline__ void write() {
        Operands of = operands(Header::last_of_all());
        for (;;) {
            ptx::barrier_wait(ring.full(), ring.phase);
            Header h = read(ring.header());
            if (h.group() < 0) break;
            if (h.first()) {
                of = operands(h);
#pragma unroll
                for (int i = 0; i < 2 * half; i++) acc[i] = 0.f;
                if (p.sums != nullptr) load(acc, p.sums[3 * h.group() + h.matrix()], place(h));
            }
            if (h.last() && p.sums != nullptr) { // what comes next may be there to be looked at
                Ring<T> then = ring;
                then.next();
                if (ptx::barrier_test(then.full(), then.phase)) {
                    Header n = read(then.header());
                    if (n.group() >= 0) prefetch(p.sums[3 * n.group() + n.matrix()], place(n));
                }
            }
            multiply(h, of);
            if (!h.last()) continue;
            auto out = static_cast<bf16_t *>(p.out[3 * h.group() + h.matrix()]);
            store(acc, out, map(h), place(h), ring.room(4 * group + warp));
        }
        ptx::store_wait();
    }

    // add adds to FP32 gradients in place.
    __device__ __forceinline__ void add() {
        Operands of = operands(Header::last_of_all());
        Slabs slabs(ring.room(4 * group + warp), ring.arrived(4 * group + warp), lane);
        auto sums_of = [&](Header h) {
            if (h.group() < 0) return Sums{};
            return Sums(static_cast<float *>(p.out[3 * h.group() + h.matrix()]), map(h), place(h));
        };
        Header now = Header::last_of_all(); // what acc is of
        for (;;) {
            ptx::barrier_wait(ring.full(), ring.phase);
            Header h = read(ring.header()), next = read(ring.next_header());
            if (h.first()) {
                Sums sums = sums_of(h);
                if (now.group() < 0) slabs.ask(sums);
                slabs.exchange(acc, sums_of(now), sums);
                of = operands(h), now = h;
            }
            if (h.group() < 0) break;
            multiply(h, of);
            if (h.asks()) slabs.ask(sums_of(next));
        }
        slabs.exchange(acc, sums_of(now), Sums{});
        ptx::store_wait();
    }
};

template <class T> __device__ __forceinline__ void experts(const FoldParams &p) {
    extern __shared__ char shared[];
    Ring<T> ring(shared);
    ring.init();
    ptx::wait_before();
    ptx::start_next();
    if (threadIdx.x >= consumers) {
        ptx::registers_down<72>();
        ptx::fence_async_memory();
        Producer<T>(p, ring).run();
    } else {
        ptx::registers_up<216>();
        ptx::fence_async_memory();
        Consumer<T> consumer(p, ring);
        if constexpr (ring.sums) consumer.add();
        else consumer.write();
    }
}

} // namespace fold

extern "C" __global__ void __launch_bounds__(fold::threads, 1) fold_experts_f32(const __grid_constant__ FoldParams p) { fold::experts<float>(p); }
extern "C" __global__ void __launch_bounds__(fold::threads, 1) fold_experts_bf16(const __grid_constant__ FoldParams p) { fold::experts<bf16_t>(p); }
