// The device's memory as the pools see it.
#pragma once

#include <cuda_runtime_api.h>

#include "core/memory_space.h"

namespace replayssm::cuda {

// Memory of the current device. Everything happens on `stream`, which outlives it; read() and
// write() wait for the stream.
class CudaSpace final : public MemorySpace {
 public:
  explicit CudaSpace(cudaStream_t stream) : stream_(stream) {}

  bool on_host() const override { return false; }
  Result<std::byte*> allocate(std::size_t bytes) override;
  void free(std::byte* data, std::size_t bytes) noexcept override;
  Status copy(std::span<const MemoryCopy> copies) override;
  Status fill(std::span<const MemoryRegion> regions, unsigned char byte) override;
  Status read(std::span<const MemoryCopy> copies) override;
  Status write(std::span<const MemoryCopy> copies) override;
  // Page-locked, so that copies need no host.
  Result<std::byte*> allocate_outside(std::size_t bytes) override;
  void free_outside(std::byte* data, std::size_t bytes) noexcept override;
  Status fetch(std::span<const MemoryCopy> copies) override;
  Status send(std::span<const MemoryCopy> copies) override;

 private:
  Status move(std::span<const MemoryCopy> copies, cudaMemcpyKind kind);

  cudaStream_t stream_;
};

}  // namespace replayssm::cuda
