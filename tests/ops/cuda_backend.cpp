#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "ops/backends.h"
#include "ops/cuda/cuda_check.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/device_memory.h"

namespace replayssm::tests {
namespace {

void must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  std::exit(2);
}

// Owns the stream as well: the operations that use it are destroyed first.
class DeviceMemory final : public BackendMemory {
 public:
  explicit DeviceMemory(cuda::Stream stream) : stream_(std::move(stream)) {
    // Memory that is given back stays with the pool: arrays come and go with every step.
    int device = 0;
    cudaMemPool_t pool = nullptr;
    std::uint64_t all = UINT64_MAX;
    must(REPLAYSSM_CUDA_STATUS(cudaGetDevice(&device)));
    must(REPLAYSSM_CUDA_STATUS(cudaDeviceGetDefaultMemPool(&pool, device)));
    must(REPLAYSSM_CUDA_STATUS(
        cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all)));
  }
  cudaStream_t stream() const { return stream_; }

  void* take(std::size_t bytes) override {
    void* memory = nullptr;
    must(REPLAYSSM_CUDA_STATUS(cudaMallocAsync(&memory, bytes, stream_)));
    return memory;
  }
  void give_back(void* memory) override {
    must(REPLAYSSM_CUDA_STATUS(cudaFreeAsync(memory, stream_)));
  }
  void put(void* memory, const void* from, std::size_t bytes) override {
    // Pageable memory has been read when this returns, and what follows is in the same stream.
    must(REPLAYSSM_CUDA_STATUS(
        cudaMemcpyAsync(memory, from, bytes, cudaMemcpyHostToDevice, stream_)));
  }
  void get(void* to, const void* memory, std::size_t bytes) override {
    must(
        REPLAYSSM_CUDA_STATUS(cudaMemcpyAsync(to, memory, bytes, cudaMemcpyDeviceToHost, stream_)));
    must(REPLAYSSM_CUDA_STATUS(cudaStreamSynchronize(stream_)));
  }

 private:
  cuda::Stream stream_;
};

}  // namespace

OwnedOps make_cuda_backend() {
  OwnedOps owned;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    owned.absent = "cuda: this machine has no GPU";
    return owned;
  }
  auto stream = cuda::Stream::make();
  must(stream.ok() ? Status() : Status(stream.error()));
  auto memory = std::make_unique<DeviceMemory>(*std::move(stream));
  auto ops = cuda::make_cuda_ops(memory->stream());
  must(ops.ok() ? Status() : Status(ops.error()));
  owned.memory = std::move(memory);
  owned.ops = *std::move(ops);
  return owned;
}

}  // namespace replayssm::tests
