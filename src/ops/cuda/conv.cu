// conv_window and conv_chunk: a thread has eight channels of a task.
#include "ops/cuda/conv.cuh"

#include <cuda_runtime.h>

#include "ops/cuda/cuda_check.h"
#include "ops/cuda/launch.h"

namespace replayssm::cuda {
namespace {

__global__ void conv_kernel(const __grid_constant__ ConvLaunch args) {
  const int octets = args.channels / kConvChannels;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= static_cast<int64_t>(args.task_count) * octets) return;
  convolve(args, args.tasks[i / octets], static_cast<int>(i % octets) * kConvChannels);
}

}  // namespace

Status launch_conv(const ConvLaunch& args, cudaStream_t stream) {
  const int64_t count = static_cast<int64_t>(args.task_count) * (args.channels / kConvChannels);
  if (count == 0) return {};
  const int threads = 128;
  const auto blocks = static_cast<unsigned>((count + threads - 1) / threads);
  conv_kernel<<<blocks, threads, 0, stream>>>(args);
  return REPLAYSSM_CUDA_STATUS(cudaGetLastError());
}

}  // namespace replayssm::cuda
