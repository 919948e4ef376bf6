// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The index of the fold's streams (R11), in integers: how many rows each has, which groups have work, where each row's parts lie;
// and the rows that are left over for the next time.

#include "fold.cuh"
#include "ptx.cuh"

constexpr int fold_lay_threads = 1024, fold_place_threads = 256;

// store_row is a waiting row's part.
__device__ __forceinline__ bf16_t *store_row(const FoldIndexParams &p, int g, int i, int part) {
    int64_t row = 2 * int64_t(p.hidden) + 3 * max(p.width, p.shared_width);
    int64_t at = part < 2 ? part * int64_t(p.hidden) : 2 * int64_t(p.hidden) + (part - 2) * int64_t(g == p.experts ? p.shared_width : p.width);
    return p.store + (int64_t(g) * segment_rows + i) * row + at;
}

// scan gives the sum of v of the threads before this one and, in all, of every thread; sums is room for 32.
__device__ __forceinline__ uint64_t fold_scan(uint64_t v, uint64_t *sums, uint64_t &all) {
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    uint64_t until = v;
    for (int d = 1; d < 32; d *= 2) {
        uint64_t from = __shfl_up_sync(~0u, until, d);
        if (lane >= d) until += from;
    }
    __syncthreads();
    if (lane == 31) sums[warp] = until;
    __syncthreads();
    uint64_t before = 0;
    all = 0;
    for (int w = 0; w < int(blockDim.x) / 32; w++) {
        if (w < warp) before += sums[w];
        all += sums[w];
    }
    return before + until - v;
}

// lay counts the rows of some calls and, once all are counted, says where each stream begins and which groups have work.
extern "C" __global__ void __launch_bounds__(fold_lay_threads) fold_lay_i32(const __grid_constant__ FoldIndexParams p) {
    extern __shared__ uint64_t sums[];
    ptx::wait_before();
    ptx::start_next();
    uint64_t next = 0; // places in the upper half, groups in the lower
    for (int from = 0; from <= p.experts; from += blockDim.x) {
        int g = from + threadIdx.x, n = 0, work = 0;
        if (g <= p.experts) {
            if (p.first == 0) n = p.before[g] = p.waiting[g];
            else n = p.count[g];
            for (int c = 0; c < p.calls_here; c++) {
                p.base[int64_t(p.first + c) * (p.experts + 1) + g] = n;
                n += p.calls[c].offsets[g + 1] - p.calls[c].offsets[g];
            }
            p.count[g] = n;
            work = p.every || (p.whole ? n / segment_rows : n) > 0;
        }
        if (!p.last) continue;
        uint64_t places = (n + segment_rows - 1) / segment_rows * segment_rows, all;
        uint64_t here = next + fold_scan(places << 32 | (g < p.experts ? work : 0), sums, all);
        next += all;
        if (g > p.experts) continue;
        p.start[g] = int(here >> 32);
        p.waiting[g] = p.whole ? n % segment_rows : 0;
        FoldWork does{g, p.whole ? n / segment_rows * segment_rows : n, p.start[g], 0};
        if (g == p.experts) p.state->shared = p.shared_group && work, p.order[g] = does;
        else if (work) p.order[uint32_t(here)] = does;
    }
    if (p.last && threadIdx.x == 0) p.state->groups = int(uint32_t(next)), p.state->next = 2 * p.blocks; // each block begins with two
}

// place writes where the parts of each row lie: a group's rows of a call, the last of the grid's calls being the store.
extern "C" __global__ void __launch_bounds__(fold_place_threads) fold_place_i32(const __grid_constant__ FoldIndexParams p) {
    ptx::wait_before();
    ptx::start_next();
    int g = blockIdx.x, c = blockIdx.y, step = gridDim.z * blockDim.x, i = blockIdx.z * blockDim.x + threadIdx.x;
    const bf16_t **to = p.rows + p.start[g];
    if (c == p.calls_here) {
        for (; i < p.before[g]; i += step)
            for (int part = 0; part < parts; part++) to[part * p.places + i] = store_row(p, g, i, part);
        return;
    }
    const FoldCall &call = p.calls[c];
    int first = call.offsets[g], n = call.offsets[g + 1] - first;
    bool shared = g == p.experts;
    const bf16_t *dgate = shared ? call.shared_dgate : call.dgate, *dup = shared ? call.shared_dup : call.dup;
    const bf16_t *hw = shared ? call.shared_hw : call.hw;
    int64_t width = shared ? p.shared_width : p.width, local = shared ? 0 : first;
    int before = p.base[int64_t(p.first + c) * (p.experts + 1) + g];
    to += before;
    for (; i < n; i += step) {
        int64_t t = int64_t(call.token[first + i]) * p.hidden, r = (local + i) * width;
        bool together = width % 64 == 0 && (before + i) % segment_rows == 0 && i + segment_rows <= n; // by strips of 64 columns
        auto laid = [&](const bf16_t *row) { return reinterpret_cast<const bf16_t *>(reinterpret_cast<uint64_t>(row + r) + together); };
        to[part_x * p.places + i] = call.x + t;
        to[part_dy * p.places + i] = call.dy + t;
        to[part_dgate * p.places + i] = laid(dgate);
        to[part_dup * p.places + i] = laid(dup);
        to[part_hw * p.places + i] = laid(hw);
    }
}

// keep copies the rows that fill no segment to the store, a block each: after the products, which may read the store's.
extern "C" __global__ void __launch_bounds__(128) fold_keep_bf16(const __grid_constant__ FoldIndexParams p) {
    ptx::wait_before();
    ptx::start_next();
    int g = blockIdx.x, n = p.count[g], whole = n / segment_rows * segment_rows, i = whole + blockIdx.y;
    if (i >= n || i < p.before[g]) return; // those that waited and still do are there
    int width = g == p.experts ? p.shared_width : p.width;
    for (int part = 0; part < parts; part++) {
        const bf16_t *from = p.rows[part * p.places + p.start[g] + i];
        bf16_t *to = store_row(p, g, i % segment_rows, part);
        int chunks = (part < 2 ? p.hidden : width) / 8;
        for (int j = threadIdx.x; j < chunks; j += blockDim.x) reinterpret_cast<uint4 *>(to)[j] = reinterpret_cast<const uint4 *>(from)[j];
    }
}
