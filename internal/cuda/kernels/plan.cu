// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The plan (R5): a stable counting sort of the slots by expert, in integers. A token chooses an expert at most once, so a bit
// for each (expert, token) says all: a row's place among its expert's rows is the number of bits before its own. Group E is
// the shared expert. Tokens without work have id -1 in their first slot.

#include "arith.cuh"
#include "params.cuh"
#include "ptx.cuh"

constexpr int plan_threads = 1024, count_threads = 512;

// Bits of a block of tokens: words for each group.
struct Bits {
    uint32_t *words;
    int each;
    __device__ __forceinline__ uint32_t *of(int g) const { return words + g * each; }
    __device__ __forceinline__ int count(int g, int before) const { // of the tokens before one
        int n = 0;
        for (int w = 0; w < before / 32; w++) n += __popc(of(g)[w]);
        if (before % 32) n += __popc(of(g)[before / 32] & ((1u << before % 32) - 1));
        return n;
    }
};

// mark sets the bits of the block's tokens [first,last), with all threads of the block.
__device__ __forceinline__ Bits mark(const PlanParams &p, uint32_t *words, int first, int last) {
    Bits bits{words, p.block_tokens / 32};
    for (int i = threadIdx.x; i < (p.experts + 1) * bits.each; i += blockDim.x) words[i] = 0;
    __syncthreads();
    int wide = p.slots + p.shared;
    for (int i = threadIdx.x; i < (last - first) * wide; i += blockDim.x) {
        int t = i / wide, k = i % wide;
        const int *ids = p.ids + int64_t(first + t) * p.slots;
        if (ids[0] < 0) continue;
        atomicOr(bits.of(k < p.slots ? ids[k] : p.experts) + t / 32, 1u << t % 32);
    }
    __syncthreads();
    return bits;
}

// place writes the block's rows; start(g) is the first row of group g in this block.
template <class Start> __device__ __forceinline__ void place(const PlanParams &p, Bits bits, int first, int last, Start start) {
    int wide = p.slots + 1;
    for (int i = threadIdx.x; i < (last - first) * wide; i += blockDim.x) {
        int t = i / wide, k = i % wide, row = -1;
        const int *ids = p.ids + int64_t(first + t) * p.slots;
        if (ids[0] >= 0 && (k < p.slots || p.shared)) {
            int g = k < p.slots ? ids[k] : p.experts;
            row = start(g) + bits.count(g, t);
            p.token[row] = first + t;
            p.slot[row] = k;
            if (p.weight) p.weight[row] = k < p.slots ? p.weights[int64_t(first + t) * p.slots + k] : contract::sigmoid(p.z[first + t]);
        }
        p.row[int64_t(first) * wide + i] = row;
    }
}

// scan gives the sum of v of the threads before this one and, in all, of every thread.
__device__ __forceinline__ uint64_t scan(uint64_t v, uint64_t &all) {
    __shared__ uint64_t sums[32];
    auto within = [](uint64_t v) { // of the lanes up to this one
        int lane = threadIdx.x & 31;
        for (int d = 1; d < 32; d *= 2) {
            uint64_t from = __shfl_up_sync(~0u, v, d);
            if (lane >= d) v += from;
        }
        return v;
    };
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    uint64_t sum = within(v);
    __syncthreads();
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    uint64_t before = within(lane < int(blockDim.x) / 32 ? sums[lane] : 0);
    all = __shfl_sync(~0u, before, 31);
    before = __shfl_sync(~0u, before, max(0, warp - 1));
    return (warp ? before : 0) + sum - v;
}

// largest_first is the place of a group's tiles where those of groups with larger tiles come first, so that blocks that take every
// so-many-th one end together. Threads are the groups, all of them; a kind is a size of tiles, the largest is 0.
constexpr int tile_kinds = plan_threads / 32;
__device__ __forceinline__ int largest_first(int kind, int tiles) {
    __shared__ int of_warp[tile_kinds][32]; // the tiles of a kind, before a warp's
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, before = 0, all = 0;
    of_warp[warp][lane] = 0; // a warp clears a row
    __syncthreads();
    for (int i = 0; i < 32; i++) {
        int other = __shfl_sync(~0u, tiles, i), its = __shfl_sync(~0u, kind, i);
        if (its != kind) continue;
        all += other;
        if (i < lane) before += other;
    }
    of_warp[kind][warp] = all;
    __syncthreads();
    uint64_t sum;
    int here = of_warp[warp][lane], first = int(scan(uint64_t(here), sum));
    of_warp[warp][lane] = first;
    __syncthreads();
    return of_warp[kind][warp] + before;
}

// lay gives each group its rows and its tiles: rows(g) is how many; use(g, first row) is told where they begin. All threads call it.
template <bool many, class Rows, class Use> __device__ __forceinline__ void lay(const PlanParams &p, Rows rows, Use use) {
    uint64_t next = 0; // tiles in the upper half, rows in the lower
    for (int base = 0; base <= p.experts; base += blockDim.x) {
        int g = base + threadIdx.x, n = g <= p.experts ? rows(g) : 0;
        int size = 1, tiles = 0;
        if (n > 0) { // as few tiles as can be, of about equal size
            tiles = (n + p.tile_most * p.tile_cluster - 1) / (p.tile_most * p.tile_cluster) * p.tile_cluster;
            size = (n + tiles - 1) / tiles;
            size = (size + p.tile_step - 1) / p.tile_step * p.tile_step;
            tiles = ((n + size - 1) / size + p.tile_cluster - 1) / p.tile_cluster * p.tile_cluster;
        }
        uint64_t all, here = next + scan(uint64_t(tiles) << 32 | uint32_t(n), all);
        next += all;
        int tile = int(here >> 32);
        int kinds = p.tile_most / p.tile_step + 1;
        if (many && p.tile_most > 128 && p.experts < int(blockDim.x) && kinds <= tile_kinds)
            tile = largest_first(n > 0 ? kinds - 1 - size / p.tile_step : kinds - 1, tiles);
        if (g > p.experts) continue;
        int row = int(here), local = g == p.experts ? 0 : row;
        p.offsets[g] = row;
        if (g == p.experts) p.offsets[g + 1] = row + n;
        use(g, row);
        for (int i = 0; i < tiles; i++) {
            int from = min(i * size, n - 1);
            p.tiles[tile + i] = Tile{g, row + from, local + from, max(0, min(size, n - i * size))};
        }
    }
    if (threadIdx.x == 0) *p.tile_count = int(next >> 32);
}

// One block does it all.
extern "C" __global__ void __launch_bounds__(plan_threads) plan_one_i32(const __grid_constant__ PlanParams p) {
    extern __shared__ uint32_t words[];
    ptx::wait_before();
    ptx::start_next();
    int tokens = p.tokens.get();
    Bits bits = mark(p, words, 0, tokens);
    int *starts = (int *)(words + (p.experts + 1) * bits.each);
    lay<false>(p, [&](int g) { return bits.count(g, tokens); }, [&](int g, int row) { starts[g] = row; });
    __syncthreads();
    place(p, bits, 0, tokens, [&](int g) { return starts[g]; });
}

// Or four kernels: each block of tokens counts; each group's counts are added up over the blocks; one block lays out; each
// block of tokens places. Where there are few blocks, the third does what the second would.
extern "C" __global__ void __launch_bounds__(count_threads) plan_count_i32(const __grid_constant__ PlanParams p) {
    extern __shared__ uint32_t words[];
    ptx::wait_before();
    ptx::start_next();
    int tokens = p.tokens.get(), first = min(int(blockIdx.x) * p.block_tokens, tokens), last = min(first + p.block_tokens, tokens);
    Bits bits = mark(p, words, first, last);
    int *counts = p.counts + int64_t(blockIdx.x) * (p.experts + 1);
    for (int g = threadIdx.x; g <= p.experts; g += blockDim.x) counts[g] = bits.count(g, last - first);
}

// A warp has a group, a lane some blocks in a row: their counts become the group's rows before each block, and after the last
// block's stands the total.
extern "C" __global__ void __launch_bounds__(256) plan_add_i32(const __grid_constant__ PlanParams p) {
    ptx::wait_before();
    ptx::start_next();
    int g = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x & 31;
    if (g > p.experts) return;
    int tokens = p.tokens.get(), blocks = (tokens + p.block_tokens - 1) / p.block_tokens, each = (blocks + 31) / 32;
    int first = min(lane * each, blocks), last = min(first + each, blocks), sum = 0;
    int *counts = p.counts + g, wide = p.experts + 1;
#pragma unroll 4
    for (int b = first; b < last; b++) sum += counts[int64_t(b) * wide];
    int until = sum;
    for (int d = 1; d < 32; d *= 2) {
        int from = __shfl_up_sync(~0u, until, d);
        if (lane >= d) until += from;
    }
    int next = until - sum;
#pragma unroll 4
    for (int b = first; b < last; b++) {
        int n = counts[int64_t(b) * wide];
        counts[int64_t(b) * wide] = next;
        next += n;
    }
    if (lane == 31) counts[int64_t(blocks) * wide] = until;
}

extern "C" __global__ void __launch_bounds__(plan_threads) plan_lay_i32(const __grid_constant__ PlanParams p) {
    ptx::wait_before();
    ptx::start_next();
    int blocks = (p.tokens.get() + p.block_tokens - 1) / p.block_tokens, wide = p.experts + 1;
    int *totals = p.counts + int64_t(blocks) * wide;
    auto rows = [&](int g) {
        if (!p.adds) return totals[g];
        int before = 0;
        constexpr int at_once = 8;
        for (int first = 0; first < blocks; first += at_once) {
            int n[at_once];
#pragma unroll
            for (int i = 0; i < at_once; i++) n[i] = first + i < blocks ? p.counts[(first + i) * wide + g] : 0;
#pragma unroll
            for (int i = 0; i < at_once; i++) {
                if (first + i < blocks) p.counts[(first + i) * wide + g] = before;
                before += n[i];
            }
        }
        return totals[g] = before;
    };
    lay<true>(p, rows, [](int, int) {});
}

extern "C" __global__ void __launch_bounds__(count_threads) plan_place_i32(const __grid_constant__ PlanParams p) {
    extern __shared__ uint32_t words[];
    ptx::wait_before();
    ptx::start_next();
    int tokens = p.tokens.get(), first = min(int(blockIdx.x) * p.block_tokens, tokens), last = min(first + p.block_tokens, tokens);
    Bits bits = mark(p, words, first, last);
    const int *starts = p.counts + int64_t(blockIdx.x) * (p.experts + 1);
    place(p, bits, first, last, [&](int g) { return p.offsets[g] + starts[g]; });
}
