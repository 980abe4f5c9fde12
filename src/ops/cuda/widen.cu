// bf16 numbers as fp32 ones, for buffers that leave the backend.
#include <cuda_runtime.h>

#include "ops/cuda/cuda_check.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/numbers.cuh"

namespace replayssm::cuda {
namespace {

__global__ void widen_kernel(const bf16* from, float* to, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) to[i] = widen(from[i]);
}

}  // namespace

Status launch_widen(const bf16* from, float* to, int64_t count, cudaStream_t stream) {
  if (count == 0) return {};
  const int threads = 256;
  const auto blocks = static_cast<unsigned>((count + threads - 1) / threads);
  widen_kernel<<<blocks, threads, 0, stream>>>(from, to, count);
  return REPLAYSSM_CUDA_STATUS(cudaGetLastError());
}

}  // namespace replayssm::cuda
