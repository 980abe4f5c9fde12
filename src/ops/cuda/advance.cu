// advance, and what plans need to know of the device.
#include "ops/cuda/advance.cuh"

#include <cuda_runtime.h>

#include "ops/cuda/cuda_check.h"
#include "ops/cuda/launch.h"

namespace replayssm::cuda {
namespace {

__global__ void advance_kernel(const __grid_constant__ AdvanceArgs args) {
  const int entry = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (entry < args.entries) advance_entry(args, entry);
}

}  // namespace

Status launch_advance(const AdvanceArgs& args, cudaStream_t stream) {
  const int threads = 128;
  const int blocks = (args.entries + threads - 1) / threads;
  advance_kernel<<<blocks, threads, 0, stream>>>(args);
  return REPLAYSSM_CUDA_STATUS(cudaGetLastError());
}

Status kernels_fit_device() {
  cudaFuncAttributes attributes{};
  return REPLAYSSM_CUDA_STATUS(cudaFuncGetAttributes(&attributes, advance_kernel));
}

Result<DeviceLimits> device_limits() {
  int device = 0, multiprocessors = 0, bytes = 0;
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaGetDevice(&device)));
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device)));
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device)));
  int all_bytes = 0, reserved = 0;
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
      cudaDeviceGetAttribute(&all_bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device)));
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(
      cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, device)));
  return DeviceLimits{multiprocessors, static_cast<std::size_t>(bytes),
                      static_cast<std::size_t>(all_bytes), static_cast<std::size_t>(reserved)};
}

}  // namespace replayssm::cuda
