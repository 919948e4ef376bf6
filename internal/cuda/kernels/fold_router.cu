// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The gradients of the router and of the shared gate (R10): acc = RN(acc + RN(dl*x)), a chain over the tokens for each element,
// so only elements are spread over threads: a warp has 64 columns, two to a lane. Rows of x are asked for well ahead of their turn.

#include "arith.cuh"
#include "fold.cuh"

constexpr int router_threads = 128, router_columns = 64, router_batch = 32, dense_experts = 8;

__device__ __forceinline__ void add_token(float (&acc)[2], float dl, uint32_t x) {
    acc[0] = __fadd_rn(acc[0], __fmul_rn(dl, contract::bf16(x & 0xFFFF)));
    acc[1] = __fadd_rn(acc[1], __fmul_rn(dl, contract::bf16(x >> 16)));
}

// Sum is one warp's 64 columns of an expert's sum: rows in batches of 32. Two batches of x are on their way while one is added. A lane for
// each row looks where it lies, then weighs it by the gradient of its logit, each two batches ahead of the next step, and hands both
// to all lanes through shared memory.
struct Sum {
    const FoldRouterParams &p;
    int first, rows, column, lane;
    uint32_t shared; // of the warp: offsets and gradients of the logits, of two batches
    float acc[2] = {};
    struct Batch {
        int token, slot; // of the batch that is looked at
        int weighed;     // the token
        float dl;        // of the batch that is weighed
        uint32_t x[router_batch]; // rows have an even number of columns
    } batches[2];

    __device__ __forceinline__ void look(Batch &b, int n) { // rows past the last repeat it
        int r = first + min(n * router_batch + lane, rows - 1);
        b.token = p.token[r], b.slot = p.slot[r];
    }
    __device__ __forceinline__ void weigh(Batch &b) {
        b.weighed = b.token;
        b.dl = p.dlogits[int64_t(b.token) * p.slots + b.slot];
    }
    __device__ __forceinline__ void ask(Batch &b, int k) {
        uint32_t offsets = shared + k * 2 * 4 * router_batch, gradients = offsets + 4 * router_batch;
        __syncwarp();
        ptx::store_shared4(offsets + 4 * lane, uint32_t(b.weighed * (p.pitch / 8)));
        ptx::store_shared4(gradients + 4 * lane, __float_as_uint(b.dl));
        __syncwarp();
        const bf16_t *x = p.x + min(column, p.pitch - 2);
#pragma unroll
        for (int i = 0; i < router_batch; i += 4) {
            uint4 v = ptx::load_shared16(offsets + 4 * i);
            uint32_t at[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int j = 0; j < 4; j++) b.x[i + j] = __ldg(reinterpret_cast<const uint32_t *>(x + 8 * uint64_t(at[j])));
        }
    }
    __device__ __forceinline__ void add(const Batch &b, int n, int k) {
        uint32_t gradients = shared + k * 2 * 4 * router_batch + 4 * router_batch;
        float dl[router_batch];
#pragma unroll
        for (int i = 0; i < router_batch; i += 4) {
            uint4 v = ptx::load_shared16(gradients + 4 * i);
            dl[i] = __uint_as_float(v.x), dl[i + 1] = __uint_as_float(v.y), dl[i + 2] = __uint_as_float(v.z), dl[i + 3] = __uint_as_float(v.w);
        }
        if ((n + 1) * router_batch <= rows) {
#pragma unroll
            for (int i = 0; i < router_batch; i++) add_token(acc, dl[i], b.x[i]);
        } else {
#pragma unroll
            for (int i = 0; i < router_batch; i++)
                if (n * router_batch + i < rows) add_token(acc, dl[i], b.x[i]);
        }
    }
    __device__ __forceinline__ void run(float *to) {
        if (column < p.hidden) acc[0] = to[0];
        if (column + 1 < p.hidden) acc[1] = to[1];
        auto next = [&](int k, int n) { // after batch n was weighed
            ask(batches[k], k);
            weigh(batches[k]);
            look(batches[k], n + 4);
        };
#pragma unroll
        for (int k = 0; k < 2; k++) look(batches[k], k);
#pragma unroll
        for (int k = 0; k < 2; k++) weigh(batches[k]), look(batches[k], k + 2);
        next(0, 0);
        if (rows > router_batch) next(1, 1);
        for (int n = 0; n * router_batch < rows; n += 2) {
#pragma unroll
            for (int k = 0; k < 2; k++) {
                add(batches[k], n + k, k);
                if ((n + k + 2) * router_batch < rows) next(k, n + k + 2);
            }
        }
        if (column < p.hidden) to[0] = acc[0];
        if (column + 1 < p.hidden) to[1] = acc[1];
    }
};

// Gate is the shared gate's sum, the longest chain: one warp adds batches of rows, and the others bring them to a ring in shared
// memory in turn.
struct Gate {
    static constexpr int depth = 8, bringing = router_threads / 32 - 1; // warps
    static constexpr int row_bytes = 2 * router_columns, batch_bytes = router_batch * (row_bytes + 4);
    const FoldRouterParams &p;
    uint32_t shared;
    int first, rows, column, lane;

    __device__ __forceinline__ uint32_t batch(int n) const { return shared + n % depth * batch_bytes; } // x, then the gradients
    __device__ __forceinline__ uint32_t full(int n) const { return shared + depth * batch_bytes + 8 * (n % depth); }
    __device__ __forceinline__ uint32_t empty(int n) const { return full(n) + 8 * depth; }

    __device__ __forceinline__ void bring(int from) const {
        auto look = [&](int n) { return p.token[first + min(n * router_batch + lane, rows - 1)]; };
        int columns = column + lane % 8 * 8, bytes = columns < p.pitch ? 16 : 0, batches = (rows + router_batch - 1) / router_batch;
        auto x = reinterpret_cast<uint64_t>(p.x + (bytes ? columns : 0));
        uint32_t to = lane / 8 * row_bytes + lane % 8 * 16;
        int token = look(from), ahead = look(from + bringing);
        for (int n = from; n < batches; n += bringing) {
            uint64_t rows_of[router_batch / 4];
#pragma unroll
            for (int i = 0; i < router_batch / 4; i++)
                rows_of[i] = ptx::multiply_add(__shfl_sync(~0u, token, 4 * i + lane / 8), 2 * p.pitch, x);
            ptx::barrier_wait(empty(n), (n / depth + 1) & 1);
#pragma unroll
            for (int i = 0; i < router_batch / 4; i++)
                ptx::copy16(batch(n) + to + 4 * i * row_bytes, reinterpret_cast<const void *>(rows_of[i]), bytes);
            ptx::copy4(batch(n) + router_batch * row_bytes + 4 * lane, p.dz + token);
            ptx::copy_arrive(full(n));
            token = ahead, ahead = look(n + 2 * bringing);
        }
        ptx::copy_wait();
    }
    __device__ __forceinline__ void add(float *to) const {
        int mine = column + 2 * lane, batches = (rows + router_batch - 1) / router_batch;
        float acc[2] = {};
        if (mine < p.hidden) acc[0] = to[mine];
        if (mine + 1 < p.hidden) acc[1] = to[mine + 1];
        for (int n = 0; n < batches; n++) {
            ptx::barrier_wait(full(n), n / depth & 1);
            uint32_t x = batch(n) + 4 * lane, gradients = batch(n) + router_batch * row_bytes;
            auto add_some = [&](auto is) {
#pragma unroll
                for (int i = 0; i < router_batch; i += 4) {
                    uint4 v = ptx::load_shared16(gradients + 4 * i);
                    uint32_t dl[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        if (is(i + j)) add_token(acc, __uint_as_float(dl[j]), ptx::load_shared4(x + (i + j) * row_bytes));
                }
            };
            int left = rows - n * router_batch;
            if (left >= router_batch) add_some([](int) { return true; });
            else add_some([&](int i) { return i < left; });
            __syncwarp();
            if (lane == 0) ptx::barrier_arrive(empty(n));
        }
        if (mine < p.hidden) to[mine] = acc[0];
        if (mine + 1 < p.hidden) to[mine + 1] = acc[1];
    }
};

// The shared gate comes first, 64 columns to a block, so that it is spread over multiprocessors; then the experts, whose sums are of the
// rows that chose them.
extern "C" __global__ void __launch_bounds__(router_threads) fold_router_f32(const __grid_constant__ FoldRouterParams p) {
    extern __shared__ uint4 room[];
    constexpr int block_columns = router_threads / 32 * router_columns;
    uint32_t shared = ptx::shared_address(room);
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31, blocks = (p.hidden + block_columns - 1) / block_columns;
    int b = blockIdx.x - (p.shared ? (p.hidden + router_columns - 1) / router_columns : 0);
    if (b < 0) {
        if (threadIdx.x == 0) {
            for (int i = 0; i < Gate::depth; i++) {
                ptx::barrier_init(shared + Gate::depth * Gate::batch_bytes + 8 * i, 32);
                ptx::barrier_init(shared + Gate::depth * (Gate::batch_bytes + 8) + 8 * i, 1);
            }
            ptx::barrier_init_fence();
        }
        __syncthreads();
    }
    ptx::wait_before();
    ptx::start_next();
    int g = b < 0 ? p.experts : b / blocks, first = p.offsets[g], rows = p.offsets[g + 1] - first;
    if (rows == 0) return;
    if (b < 0) {
        Gate gate{p, shared, first, rows, int(blockIdx.x) * router_columns, lane};
        if (warp == 0) gate.add(p.shared_gate);
        else gate.bring(warp - 1);
        return;
    }
    int column = b % blocks * block_columns + warp * router_columns + 2 * lane;
    Sum{p, first, rows, column, lane, shared + warp * 2 * 2 * 4 * router_batch}.run(p.router + int64_t(g) * p.hidden + column);
}

// Dense, every logit of a token has a gradient: a warp has some experts, and all tokens that take part.
extern "C" __global__ void __launch_bounds__(32) fold_router_dense_f32(const __grid_constant__ FoldRouterParams p) {
    ptx::wait_before();
    ptx::start_next();
    int first = blockIdx.y * dense_experts, lane = threadIdx.x, column = blockIdx.x * router_columns + 2 * lane;
    float acc[dense_experts][2] = {};
    auto each = [&](auto go) {
#pragma unroll
        for (int e = 0; e < dense_experts; e++) {
            if (first + e >= p.experts) break;
            float *to = p.router + int64_t(first + e) * p.hidden + column;
            if (column < p.hidden) go(acc[e][0], to[0]);
            if (column + 1 < p.hidden) go(acc[e][1], to[1]);
        }
    };
    each([](float &acc, float &to) { acc = to; });
    int tokens = p.tokens.get();
#pragma unroll 4
    for (int t = 0; t < tokens; t++) {
        if (p.row[int64_t(t) * (p.slots + 1)] < 0) continue;
        uint32_t x = column < p.pitch ? *reinterpret_cast<const uint32_t *>(p.x + int64_t(t) * p.pitch + column) : 0;
        const float *dl = p.dlogits + int64_t(t) * p.experts + first;
#pragma unroll
        for (int e = 0; e < dense_experts; e++)
            if (first + e < p.experts) add_token(acc[e], dl[e], x);
    }
    each([](float &acc, float &to) { to = acc; });
}

// round ends a sum: its one cast.
extern "C" __global__ void __launch_bounds__(256) fold_round_bf16(const __grid_constant__ FoldRoundParams p) {
    ptx::wait_before();
    ptx::start_next();
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < p.n; i += int64_t(gridDim.x) * blockDim.x) {
        p.to[i] = bf16_t(contract::round(p.from[i]));
        p.from[i] = 0.f;
    }
}
