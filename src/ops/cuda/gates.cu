// gates: one thread an element.
#include "ops/cuda/gates.cuh"

#include <cuda_runtime.h>

#include "ops/cuda/cuda_check.h"
#include "ops/cuda/launch.h"

namespace replayssm::cuda {
namespace {

__global__ void gates_kernel(const __grid_constant__ GateArgs args, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) gate_element(args, i);
}

}  // namespace

Status launch_gates(const GateArgs& args, cudaStream_t stream) {
  const int64_t count = static_cast<int64_t>(args.tokens) * args.value_heads * args.gate_width;
  if (count == 0) return {};
  const int threads = 256;
  const auto blocks = static_cast<unsigned>((count + threads - 1) / threads);
  gates_kernel<<<blocks, threads, 0, stream>>>(args, count);
  return REPLAYSSM_CUDA_STATUS(cudaGetLastError());
}

}  // namespace replayssm::cuda
