// The machine instructions that the kernels use, each in one small named function. The plain-load
// route (no bulk copies, sm_80) differs from the Hopper route in this file alone.
// Built with REPLAYSSM_EMULATED_GPU, the same names come from an emulator that runs a block's
// threads on the CPU.
#pragma once

#include <cstdint>

#if defined(REPLAYSSM_EMULATED_GPU)
#include "cuda_emulated_ptx.h"
#else

namespace replayssm::cuda::ptx {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr bool kBulkCopies = true;
#else
inline constexpr bool kBulkCopies = false;
#endif

__device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x); }
__device__ __forceinline__ int threads() { return static_cast<int>(blockDim.x); }
__device__ __forceinline__ int block() { return static_cast<int>(blockIdx.x); }
__device__ __forceinline__ int blocks() { return static_cast<int>(gridDim.x); }
__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x & 31u); }

__device__ __forceinline__ float shuffle(float x, int source) {
  return __shfl_sync(0xffffffffu, x, source);
}
__device__ __forceinline__ int shuffle(int x, int source) {
  return __shfl_sync(0xffffffffu, x, source);
}
__device__ __forceinline__ uint32_t shuffle(uint32_t x, int source) {
  return __shfl_sync(0xffffffffu, x, source);
}
__device__ __forceinline__ float shuffle_xor(float x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
// Lanes whose source lies past lane 31 get their own value.
__device__ __forceinline__ float shuffle_down(float x, int distance) {
  return __shfl_down_sync(0xffffffffu, x, distance);
}
__device__ __forceinline__ void sync_warp() { __syncwarp(); }
__device__ __forceinline__ void sync_block() { __syncthreads(); }
// Barrier of the threads of one consumer group; id 1 .. 15.
template <int kThreads = 128>
__device__ __forceinline__ void sync_group(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

// Warps of a kernel whose registers are dealt out anew: all four warps of one quarter of them ask
// together, from the first warp on that is a multiple of four. No effect but on sm_90a.
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

// c += a b, a [16, 16] bf16 row-major fragments, b [16, 8] bf16, c [16, 8] fp32. With
// g = lane / 4, t = lane % 4: a0 holds rows g, columns 2t and 2t+1; a1 rows g+8; a2 and a3 the same
// rows, columns 2t+8 and 2t+9. b0 holds rows 2t, 2t+1 of column g; b1 rows 2t+8, 2t+9. c[0], c[1]
// are row g, columns 2t, 2t+1; c[2], c[3] row g+8.
__device__ __forceinline__ void mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                    uint32_t a3, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Four matrices of 8 by 8 16-bit numbers in shared memory, transposed. Lane l brings the address of
// row l % 8 of matrix l / 8, 16 bytes. r[i] holds rows 2t and 2t+1 of column g of matrix i.
__device__ __forceinline__ void load_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// Stores to global memory where `live`, without a branch.
__device__ __forceinline__ void store_where(bool live, float* to, float x) {
  asm volatile(
      "{ .reg .pred p; setp.ne.s32 p, %0, 0; @p st.global.f32 [%1], %2; }" ::"r"(live ? 1 : 0),
      "l"(to), "f"(x));
}
__device__ __forceinline__ void store_where(bool live, uint16_t* to, uint16_t x) {
  asm volatile(
      "{ .reg .pred p; setp.ne.s32 p, %0, 0; @p st.global.u16 [%1], %2; }" ::"r"(live ? 1 : 0),
      "l"(to), "h"(x));
}

// Two floats rounded to nearest even, `low` in the lower half.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// --- barriers in shared memory -------------------------------------------------------------------

__device__ __forceinline__ void barrier_init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
}
// Makes initialised barriers visible to the copy engine; a block barrier must follow.
__device__ __forceinline__ void barrier_init_fence() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
  asm volatile(
      "{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_address(barrier))
      : "memory");
}
// One arrival that also announces `bytes` of bulk copies. Without bulk copies just the arrival.
__device__ __forceinline__ void barrier_arrive_expect(uint64_t* barrier, uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
#else
  (void)bytes;
  barrier_arrive(barrier);
#endif
}
// Returns when the phase of the given parity has completed.
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, int parity) {
  uint32_t done;
  do {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
#else
    // sm_80 knows phases by token only; test_wait.parity came with PTX 7.1 for sm_90-style use and
    // is accepted for sm_80 as well.
    asm volatile(
        "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
#endif
  } while (done == 0);
}

// --- copies from global to shared memory ---------------------------------------------------------
// Called by all lanes of one warp. Bytes and addresses are multiples of 16. Bulk copies complete on
// the barrier's byte count; plain ones on the arrival of copies_arrive().

__device__ __forceinline__ void copy_piece(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from)
               : "memory");
}
__device__ __forceinline__ void copy_bulk(void* to, const void* from, uint32_t bytes,
                                          uint64_t* barrier) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
#else
  (void)to, (void)from, (void)bytes, (void)barrier;
#endif
}

// `bytes` contiguous bytes, called by one lane for a bulk copy and by all lanes where there are
// none: see copies_blocks().
__device__ __forceinline__ void copy_block(void* to, const void* from, uint32_t bytes,
                                           uint64_t* barrier) {
  if constexpr (kBulkCopies) {
    copy_bulk(to, from, bytes, barrier);
  } else {
    for (uint32_t i = static_cast<uint32_t>(lane()) * 16; i < bytes; i += 512) {
      copy_piece(static_cast<char*>(to) + i, static_cast<const char*>(from) + i);
    }
  }
}
// The lanes that have to call copy_block().
__device__ __forceinline__ bool copies_blocks() { return !kBulkCopies || lane() == 0; }
// `bytes` contiguous bytes in plain 16-byte pieces: cheaper than a bulk copy below about 512 bytes.
__device__ __forceinline__ void copy_small(void* to, const void* from, uint32_t bytes) {
  for (uint32_t i = static_cast<uint32_t>(lane()) * 16; i < bytes; i += 512) {
    copy_piece(static_cast<char*>(to) + i, static_cast<const char*>(from) + i);
  }
}
// Brings `bytes` contiguous bytes into the L2 cache; one lane. No effect where there are no bulk
// copies.
__device__ __forceinline__ void prefetch_block(const void* from, uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes));
#else
  (void)from, (void)bytes;
#endif
}
// One float per calling lane; zero where not `live`, and then `from` is not read.
__device__ __forceinline__ void copy_float(float* to, const float* from, bool live) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(live ? 4 : 0)
               : "memory");
}
// Every lane: arrives once its own plain copies so far have landed. Counts as 32 arrivals a warp.
__device__ __forceinline__ void copies_arrive(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
// Orders this thread's ordinary stores to shared memory before bulk copies that read or refill it.
__device__ __forceinline__ void fence_before_bulk() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// --- copies from shared to global memory ---------------------------------------------------------

// `bytes` contiguous bytes that this warp has written to shared memory; all lanes, after
// fence_before_bulk() and sync_warp(). One bulk copy writes whole lines, which lanes' own stores of
// parts of rows do not.
__device__ __forceinline__ void store_block(void* to, const void* from, uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (lane() == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
#else
  for (uint32_t i = static_cast<uint32_t>(lane()) * 16; i < bytes; i += 512) {
    *reinterpret_cast<uint4*>(static_cast<char*>(to) + i) =
        *reinterpret_cast<const uint4*>(static_cast<const char*>(from) + i);
  }
#endif
}
// The lane that issued store_block(): returns when shared memory has been read.
__device__ __forceinline__ void wait_for_stores_to_read() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}

// --- overlap of dependent launches ---------------------------------------------------------------

// Lets the next kernel of the stream be scheduled while this one runs. No effect where the launch
// did not ask for it.
__device__ __forceinline__ void allow_next_launch() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Returns when every earlier kernel of the stream has finished and its writes are visible.
__device__ __forceinline__ void wait_for_previous_launch() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace replayssm::cuda::ptx
#endif
