#include "model/cuda/draft_kernels.h"

#include <cuda_runtime.h>

#include "model/cuda/decoder_math.cuh"
#include "ops/cuda/cuda_check.h"

namespace replayssm::cuda {
namespace {

// One block a token and half.
__global__ void join_kernel(const __grid_constant__ JoinArgs args) {
  const int64_t token = blockIdx.x;
  const bool second = blockIdx.y == 1;
  const bf16* const x = second ? args.given + token * args.width
                               : args.table + static_cast<int64_t>(args.tokens[token]) * args.width;
  const float* const scale = second ? args.given_scale : args.embedding_scale;
  rms_norm_row(x, scale, args.eps, args.width, args.joined + (2 * token + blockIdx.y) * args.width);
}

// One block a row.
__global__ void clear_first_kernel(const __grid_constant__ ClearFirstArgs args) {
  const int64_t page = args.pages[args.page_start[blockIdx.x]];
  const int64_t at = page * args.page_tokens * args.position;
  for (int i = static_cast<int>(threadIdx.x) * kOctet; i < args.position;
       i += static_cast<int>(blockDim.x) * kOctet) {
    *reinterpret_cast<uint4*>(args.keys + at + i) = uint4{0, 0, 0, 0};
    *reinterpret_cast<uint4*>(args.values + at + i) = uint4{0, 0, 0, 0};
  }
}

}  // namespace

Status launch_join(const JoinArgs& args, cudaStream_t stream) {
  if (args.count == 0) return {};
  const int octets = (args.width + kOctet - 1) / kOctet;
  const int threads = octets < 512 ? (octets + kWarp - 1) / kWarp * kWarp : 512;
  join_kernel<<<dim3(static_cast<unsigned>(args.count), 2), threads, 0, stream>>>(args);
  return REPLAYSSM_CUDA_STATUS(cudaGetLastError());
}

Status launch_clear_first(const ClearFirstArgs& args, cudaStream_t stream) {
  if (args.rows == 0) return {};
  clear_first_kernel<<<static_cast<unsigned>(args.rows), 128, 0, stream>>>(args);
  return REPLAYSSM_CUDA_STATUS(cudaGetLastError());
}

}  // namespace replayssm::cuda
