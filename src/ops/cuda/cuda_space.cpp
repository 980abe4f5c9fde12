#include "ops/cuda/cuda_space.h"

#include <algorithm>

#include "ops/cuda/cuda_check.h"

namespace replayssm::cuda {
namespace {

// cudaDeviceProp::memPitch of every device: the two-dimensional calls refuse a larger one.
constexpr std::size_t kLargestPitch = (std::size_t{1} << 31) - 1;

}  // namespace

Result<std::byte*> CudaSpace::allocate(std::size_t bytes) {
  if (bytes == 0) return static_cast<std::byte*>(nullptr);
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // the next call is not to report it again
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return Error{
        fmt::format("GPU memory: {} bytes are asked for, {} of {} are free", bytes, free, total)};
  }
  REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(error));
  auto* const made = static_cast<std::byte*>(data);
  const Status zeroed = REPLAYSSM_CUDA_STATUS(cudaMemsetAsync(data, 0, bytes, stream_));
  if (zeroed.ok()) return made;
  cudaFree(data);
  return zeroed.error();
}

void CudaSpace::free(std::byte* data, std::size_t /*bytes*/) noexcept { cudaFree(data); }

Status CudaSpace::move(std::span<const MemoryCopy> copies, cudaMemcpyKind kind) {
  for (const MemoryCopy& c : copies) {
    if (c.bytes == 0 || c.count == 0) continue;
    if (c.count == 1 || std::max(c.from_pitch, c.to_pitch) > kLargestPitch) {
      for (std::size_t i = 0; i < c.count; ++i) {
        REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaMemcpyAsync(
            c.to + i * c.to_pitch, c.from + i * c.from_pitch, c.bytes, kind, stream_)));
      }
      continue;
    }
    REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaMemcpy2DAsync(c.to, c.to_pitch, c.from, c.from_pitch,
                                                          c.bytes, c.count, kind, stream_)));
  }
  return {};
}

Status CudaSpace::copy(std::span<const MemoryCopy> copies) {
  return move(copies, cudaMemcpyDeviceToDevice);
}

Status CudaSpace::fill(std::span<const MemoryRegion> regions, unsigned char byte) {
  for (const MemoryRegion& r : regions) {
    if (r.bytes == 0 || r.count == 0) continue;
    if (r.count == 1 || r.pitch > kLargestPitch) {
      for (std::size_t i = 0; i < r.count; ++i) {
        REPLAYSSM_TRY(REPLAYSSM_CUDA_STATUS(cudaMemsetAsync(r.piece(i), byte, r.bytes, stream_)));
      }
      continue;
    }
    REPLAYSSM_TRY(
        REPLAYSSM_CUDA_STATUS(cudaMemset2DAsync(r.data, r.pitch, byte, r.bytes, r.count, stream_)));
  }
  return {};
}

Status CudaSpace::read(std::span<const MemoryCopy> copies) {
  REPLAYSSM_TRY(move(copies, cudaMemcpyDeviceToHost));
  return REPLAYSSM_CUDA_STATUS(cudaStreamSynchronize(stream_));
}

Status CudaSpace::write(std::span<const MemoryCopy> copies) {
  REPLAYSSM_TRY(move(copies, cudaMemcpyHostToDevice));
  return REPLAYSSM_CUDA_STATUS(cudaStreamSynchronize(stream_));
}

Result<std::byte*> CudaSpace::allocate_outside(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMallocHost(&data, bytes);
  if (error != cudaSuccess) {
    cudaGetLastError();  // the next call is not to report it again
    return Error{fmt::format("page-locked memory: {} bytes: {}", bytes, cudaGetErrorString(error))};
  }
  return static_cast<std::byte*>(data);
}

void CudaSpace::free_outside(std::byte* data, std::size_t /*bytes*/) noexcept {
  cudaStreamSynchronize(stream_);
  cudaFreeHost(data);
}

Status CudaSpace::fetch(std::span<const MemoryCopy> copies) {
  return move(copies, cudaMemcpyDeviceToHost);
}

Status CudaSpace::send(std::span<const MemoryCopy> copies) {
  return move(copies, cudaMemcpyHostToDevice);
}

}  // namespace replayssm::cuda
