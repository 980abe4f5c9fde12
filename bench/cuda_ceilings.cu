#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "cuda_ceilings.h"
#include "cuda_layer_set.h"
#include "ops/cuda/cuda_check.h"

namespace replayssm::bench {
namespace {

constexpr std::size_t kBytes = std::size_t{2} << 30;

__global__ void update_in_place(float4* values, std::size_t count) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    float4 v = values[i];
    v.x = v.x * 0.5f + 1;
    v.y = v.y * 0.5f + 1;
    v.z = v.z * 0.5f + 1;
    v.w = v.w * 0.5f + 1;
    values[i] = v;
  }
}

__global__ void read_only(const uint4* values, std::size_t count, uint32_t* never) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  uint32_t seen = 0;
#pragma unroll 4
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const uint4 v = values[i];
    seen |= (v.x ^ v.y) & (v.z ^ v.w) & 1u;
  }
  if (seen == 2) *never = seen;  // keeps the loads
}

// GB/s of `bytes` moved by one run of `work`: the median of nine.
template <class Work>
Result<double> speed(cudaStream_t stream, double bytes, Work&& work) {
  cudaEvent_t begin = nullptr, end = nullptr;
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaEventCreate(&begin)));
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaEventCreate(&end)));
  std::vector<float> times;
  for (int i = 0; i < 10; ++i) {
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaEventRecord(begin, stream)));
    REPLAYSSM_TRY(work());
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaEventRecord(end, stream)));
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaStreamSynchronize(stream)));
    float ms = 0;
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaEventElapsedTime(&ms, begin, end)));
    if (i > 0) times.push_back(ms);
  }
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaEventDestroy(begin)));
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaEventDestroy(end)));
  std::sort(times.begin(), times.end());
  return bytes / times[times.size() / 2] * 1e-6;
}

}  // namespace

Result<Ceilings> measure_cuda_ceilings(cudaStream_t stream) {
  auto from = DeviceBuffer::make(kBytes);
  if (!from) return from.error();
  auto to = DeviceBuffer::make(kBytes);
  if (!to) return to.error();
  REPLAYSSM_TRY(fill_random(*from, DType::f32, -1, 1));
  const auto copy = speed(stream, 2.0 * kBytes, [&]() -> Status {
    return REPLAYSSM_CUDA_STATUS(cudaMemcpyAsync(to->as<void>(), from->as<void>(), kBytes,
                                                 cudaMemcpyDeviceToDevice, stream));
  });
  if (!copy) return copy.error();
  const auto update = speed(stream, 2.0 * kBytes, [&]() -> Status {
    update_in_place<<<132 * 16, 512, 0, stream>>>(from->as<float4>(), kBytes / sizeof(float4));
    return REPLAYSSM_CUDA_STATUS(cudaGetLastError());
  });
  if (!update) return update.error();
  const auto read = speed(stream, kBytes, [&]() -> Status {
    read_only<<<132 * 16, 512, 0, stream>>>(from->as<uint4>(), kBytes / sizeof(uint4),
                                            to->as<uint32_t>());
    return REPLAYSSM_CUDA_STATUS(cudaGetLastError());
  });
  if (!read) return read.error();
  return Ceilings{*copy, *update, *read};
}

}  // namespace replayssm::bench
