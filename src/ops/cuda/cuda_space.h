// The device's memory as the pools see it.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <vector>

#include "core/memory_space.h"
#include "ops/cuda/device_memory.h"
#include "ops/cuda/pinned_buffer.h"

namespace replayssm::cuda {

// Memory of the current device. Operations happen on `stream`, which outlives it; read() waits for
// it, and write() unless it is small and of whole words, which travel as a launch's parameters.
// Transfers happen on a stream of their own.
class CudaSpace final : public MemorySpace {
 public:
  static Result<CudaSpace> make(cudaStream_t stream);

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
  Result<Transfer> fetch(std::span<const MemoryCopy> copies) override;
  Result<Transfer> send(std::span<const MemoryCopy> copies) override;
  Result<Transfer> copy_beside(std::span<const MemoryCopy> copies) override;
  Transfer ended() override;
  Status follow(Transfer transfer) override;
  std::int64_t waits() const override { return waits_for_streams(); }

 private:
  explicit CudaSpace(cudaStream_t stream) : stream_(stream) {}
  Result<Transfer> transfer(std::span<const MemoryCopy> copies, cudaMemcpyKind kind);
  Status begin_transfer(std::span<const MemoryCopy> copies, cudaMemcpyKind kind, Event& end);

  cudaStream_t stream_;
  Stream transfers_;
  Event so_far_;  // of stream_, where the newest transfer begins
  // The transfers that are not known to be over, with an event at the end of each.
  struct Pending {
    Transfer transfer;
    Event end;
  };
  std::deque<Pending> pending_;
  std::vector<Event> events_;  // to be used again
  Transfer newest_;
};

}  // namespace replayssm::cuda
