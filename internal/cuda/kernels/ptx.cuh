// Copyright 2026 The samebit authors. SPDX-License-Identifier: Apache-2.0

// The instructions that CUDA C++ has no words for, one named wrapper each, so that kernels read as algorithms.

#pragma once

#include <cstdint>

namespace ptx {

__device__ __forceinline__ uint32_t shared_address(const void *p) { return uint32_t(__cvta_generic_to_shared(p)); }

// mbarrier: the hand-over of a stage between the warps that fill it and those that read it.

__device__ __forceinline__ void barrier_init(uint32_t bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_arrive(uint32_t bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t bar, uint32_t parity) {
    asm volatile("{\n\t"
                 ".reg .pred done;\n"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra again;\n\t"
                 "}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
}

// Whether a wait would not.
__device__ __forceinline__ bool barrier_test(uint32_t bar, uint32_t parity) {
    uint32_t is;
    asm volatile("{\n\t"
                 ".reg .pred done;\n\t"
                 "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, done;\n\t"
                 "}"
                 : "=r"(is)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return is;
}
// From shared memory to memory; groups of such copies: all but the last pending ones have been read, or all are done.
__device__ __forceinline__ void tensor_store2(const void *map, uint32_t from, int c0, int c1) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(from), "r"(c0), "r"(c1) : "memory");
}
__device__ __forceinline__ void tensor_store3(const void *map, uint32_t from, int c0, int c1, int c2) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map), "r"(from), "r"(c0), "r"(c1), "r"(c2)
                 : "memory");
}
__device__ __forceinline__ void tensor_store4(const void *map, uint32_t from, int c0, int c1, int c2, int c3) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map), "r"(from), "r"(c0),
                 "r"(c1), "r"(c2), "r"(c3)
                 : "memory");
}
__device__ __forceinline__ void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int pending> __device__ __forceinline__ void store_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory"); }
__device__ __forceinline__ void store_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// Bytes, a multiple of 16 at one, to the L2 cache.
__device__ __forceinline__ void prefetch_bulk(const void *from, uint32_t bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// Some of a block's warps: named barrier id over n threads, which wait, or go on.
__device__ __forceinline__ void group_sync(int id, int n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
__device__ __forceinline__ void group_arrive(int id, int n) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory"); }

// Copies into shared memory.

__device__ __forceinline__ void copy16(uint32_t dst, const void *src, uint32_t size) { // of 16 bytes, those from size on are zero
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(size) : "memory");
}
__device__ __forceinline__ void copy16_if(bool is, uint32_t dst, uint64_t src, uint32_t size) {
    asm volatile("{\n\t"
                 ".reg .pred is;\n\t"
                 "setp.ne.b32 is, %3, 0;\n\t"
                 "@is cp.async.cg.shared.global [%0], [%1], 16, %2;\n\t"
                 "}" ::"r"(dst),
                 "l"(src), "r"(size), "r"(int(is))
                 : "memory");
}
__device__ __forceinline__ void copy4(uint32_t dst, const void *src) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(dst), "l"(src) : "memory");
}
// This thread arrives at the barrier once its copies so far are done.
__device__ __forceinline__ void copy_arrive(uint32_t bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void copy_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// What this thread wrote to shared memory, or saw written, is seen by the tensor cores and the copy engine.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void tensor_copy2(uint32_t dst, const void *map, uint32_t bar, int c0, int c1) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(dst),
                 "l"(map), "r"(bar), "r"(c0), "r"(c1)
                 : "memory");
}
__device__ __forceinline__ void tensor_copy3(uint32_t dst, const void *map, uint32_t bar, int c0, int c1, int c2) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(dst),
                 "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2)
                 : "memory");
}
__device__ __forceinline__ void tensor_copy4(uint32_t dst, const void *map, uint32_t bar, int c0, int c1, int c2, int c3) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(dst),
        "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
        : "memory");
}
__device__ __forceinline__ void tensor_copy5(uint32_t dst, const void *map, uint32_t bar, int c0, int c1, int c2, int c3, int c4) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(dst),
        "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
        : "memory");
}
// The same of what is not wanted again: it is the first to leave the L2 cache.
__device__ __forceinline__ void tensor_copy5_once(uint32_t dst, const void *map, uint32_t bar, int c0, int c1, int c2, int c3, int c4) {
    asm volatile("{\n\t"
                 ".reg .b64 first;\n\t"
                 "createpolicy.fractional.L2::evict_first.b64 first, 1.0;\n\t"
                 "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, %4, %5, %6, %7}], "
                 "[%2], first;\n\t"
                 "}" ::"r"(dst),
                 "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
                 : "memory");
}

// The same into several blocks of the cluster, those of the mask: to the same place in each, and each one's barrier is told.
__device__ __forceinline__ void tensor_copy4(uint32_t dst, const void *map, uint32_t bar, uint16_t mask, int c0, int c1, int c2, int c3) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5, %6, %7}], "
                 "[%2], %3;" ::"r"(dst),
                 "l"(map), "r"(bar), "h"(mask), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
                 : "memory");
}
__device__ __forceinline__ void tensor_copy5(uint32_t dst, const void *map, uint32_t bar, uint16_t mask, int c0, int c1, int c2, int c3, int c4) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%4, %5, %6, %7, "
                 "%8}], [%2], %3;" ::"r"(dst),
                 "l"(map), "r"(bar), "h"(mask), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
                 : "memory");
}

// Clusters: blocks that run together and reach each other's shared memory.

__device__ __forceinline__ int cluster_rank() {
    uint32_t r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return int(r);
}
// A barrier of the cluster's block of some rank, that lies where bar does in this one. What this thread read from shared memory
// through the tensor cores is done by then; nothing that it wrote is handed over, so that no fence is needed.
__device__ __forceinline__ void barrier_arrive_at(uint32_t bar, int rank) {
    asm volatile("{\n\t"
                 ".reg .b32 there;\n\t"
                 "mapa.shared::cluster.u32 there, %0, %1;\n\t"
                 "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [there];\n\t"
                 "}" ::"r"(bar),
                 "r"(rank)
                 : "memory");
}
// For every thread of the cluster that has not ended; the lanes of a warp may have parted.
__device__ __forceinline__ void cluster_sync() { asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory"); }

// What others wrote to memory before is seen by the copy engine.
__device__ __forceinline__ void fence_async_memory() { asm volatile("fence.proxy.async;" ::: "memory"); }

// The line at an address of global memory is fetched into the L2 cache.
__device__ __forceinline__ void prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// wgmma's frame; the instruction itself, for every N, is in wgmma_gen.cuh.

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending> __device__ __forceinline__ void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory"); }

// A tile of rows of 64 BF16 (128 bytes), swizzled by 128 bytes, K contiguous; 16 terms of K further is 2 further. Of an operand that
// is turned it is 64 rows by terms of 128 bytes, and 16 terms further is 128 further.
__device__ __forceinline__ uint64_t wgmma_tile(uint32_t address) {
    return uint64_t(address >> 4 & 0x3FFF) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

template <int n> __device__ __forceinline__ void registers_up() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n)); }
template <int n> __device__ __forceinline__ void registers_down() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n)); }

// Four 8x8 blocks of 16-bit values, transposed: what a thread holds along a row lies along a column.
__device__ __forceinline__ void store_transposed4(uint32_t dst, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(dst), "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

// The same as they are.
__device__ __forceinline__ void store_matrix4(uint32_t dst, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(dst), "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

__device__ __forceinline__ void store_shared16(uint32_t dst, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(dst), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ void store_shared4(uint32_t dst, uint32_t v) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(dst), "r"(v) : "memory"); }
__device__ __forceinline__ void store_shared2(uint32_t dst, uint16_t v) { asm volatile("st.shared.u16 [%0], %1;" ::"r"(dst), "h"(v) : "memory"); }
__device__ __forceinline__ void store_shared8(uint32_t dst, uint32_t a, uint32_t b) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(dst), "r"(a), "r"(b) : "memory");
}
__device__ __forceinline__ void load_shared8(uint32_t src, int &a, uint32_t &b) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(src) : "memory");
}
__device__ __forceinline__ void store_shared8(uint32_t dst, float a, float b) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(dst), "f"(a), "f"(b) : "memory");
}
__device__ __forceinline__ uint16_t load_shared2(uint32_t src) {
    uint16_t v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(src) : "memory");
    return v;
}
__device__ __forceinline__ uint32_t load_shared4(uint32_t src) {
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(src) : "memory");
    return v;
}
__device__ __forceinline__ float2 load_shared8(uint32_t src) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(src) : "memory");
    return v;
}
__device__ __forceinline__ uint4 load_shared16(uint32_t src) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(src) : "memory");
    return v;
}

__device__ __forceinline__ void store_shared4(uint32_t dst, float v) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(dst), "f"(v) : "memory");
}

// a*b + c, in 64 bits.
__device__ __forceinline__ uint64_t multiply_add(uint32_t a, uint32_t b, uint64_t c) {
    uint64_t v;
    asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(v) : "r"(a), "r"(b), "l"(c));
    return v;
}

// Programmatic dependent launch: work before wait_before overlaps the kernel before this one in the stream; what that one
// wrote is visible after it.
__device__ __forceinline__ void wait_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void start_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// 1/x to within an ulp; a subnormal x or result is zero.
__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// 2^x to within two ulps or so; a subnormal result is zero.
__device__ __forceinline__ float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// Two floats to BF16, to nearest even, lo in the lower half; a NaN is 0x7FFF here, which R0 does not want.
__device__ __forceinline__ uint32_t pack_bf16(float lo, float hi) {
    uint32_t v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
    return v;
}

} // namespace ptx
