// chunk_prefill: the kernels, whose instances two files share.
#pragma once

#include "ops/cuda/chunk_tail.cuh"
#include "ops/cuda/chunk_unit.cuh"
#include "ops/cuda/instances.h"
#include "ops/cuda/launch_kernel.cuh"

namespace replayssm::cuda {

Status launch_chunks_gdn(const StepPlan& plan, const StepArgs& args, cudaStream_t stream);
Status launch_chunks_kda(const StepPlan& plan, const StepArgs& args, cudaStream_t stream);

template <class Layout>
__global__ void __launch_bounds__(Layout::kChunkThreads, Layout::kTiled ? 1 : 2)
    chunk_kernel(const __grid_constant__ StepArgs args, int, int) {
  extern __shared__ __align__(1024) unsigned char shared[];
  chunk_block<Layout>(args, shared);
}

template <GateKind kGate>
__global__ void chunk_tail_kernel(const __grid_constant__ StepArgs args) {
  const int warp = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / 32);
  if (warp < chunk_tail_warps(args)) append_chunk_tail<kGate>(args, warp);
}

template <GateKind kGate>
Status launch_chunks(const StepPlan& plan, const StepArgs& args, cudaStream_t stream) {
  REPLAYSSM_TRY(visit_chunk_layout<kGate>(plan, if_built(plan, [&]<class Layout>(Layout) {
                                            return launch_with_plan<StepArgs>(chunk_kernel<Layout>,
                                                                              plan, args, stream);
                                          })));
  const int threads = 128;
  const int warps = args.batch.entries * args.key_heads * args.fold_block;
  const auto blocks = static_cast<unsigned>((warps * 32 + threads - 1) / threads);
  chunk_tail_kernel<kGate><<<blocks, threads, 0, stream>>>(args);
  return REPLAYSSM_CUDA_STATUS(cudaGetLastError());
}

}  // namespace replayssm::cuda
