#include "ops/cuda/device_memory.h"

#include <algorithm>
#include <atomic>

#include "ops/cuda/cuda_check.h"

namespace replayssm::cuda {
namespace {

std::atomic<std::int64_t> waits = 0;

}  // namespace

Status wait_for(cudaStream_t stream) {
  waits.fetch_add(1, std::memory_order_relaxed);
  return REPLAYSSM_CUDA_STATUS(cudaStreamSynchronize(stream));
}

std::int64_t waits_for_streams() { return waits.load(std::memory_order_relaxed); }

Result<DeviceBuffer> DeviceBuffer::make(std::size_t bytes) {
  DeviceBuffer buffer;
  const Status made =
      REPLAYSSM_CUDA_STATUS(cudaMalloc(&buffer.data_, std::max<std::size_t>(bytes, 1)));
  if (!made) {
    cudaGetLastError();  // or the next launch would report it, too
    return made.error();
  }
  buffer.bytes_ = bytes;
  return buffer;
}

Result<DeviceBuffer> DeviceBuffer::copy_of(const void* from, std::size_t bytes) {
  auto buffer = make(bytes);
  if (!buffer) return buffer.error();
  // cudaMemcpy may return before pageable memory has arrived, and streams that do not block run
  // beside the one that it is in.
  REPLAYSSM_TRY(buffer->put(from, cudaStreamLegacy));
  return buffer;
}

Status DeviceBuffer::put(const void* from, cudaStream_t stream) {
  REPLAYSSM_TRY(
      REPLAYSSM_CUDA_STATUS(cudaMemcpyAsync(data_, from, bytes_, cudaMemcpyHostToDevice, stream)));
  return wait_for(stream);
}

Status DeviceBuffer::get(void* to, cudaStream_t stream) const {
  REPLAYSSM_TRY(
      REPLAYSSM_CUDA_STATUS(cudaMemcpyAsync(to, data_, bytes_, cudaMemcpyDeviceToHost, stream)));
  return wait_for(stream);
}

Result<Stream> Stream::make() {
  Stream stream;
  REPLAYSSM_TRY(
      REPLAYSSM_CUDA_STATUS(cudaStreamCreateWithFlags(&stream.stream_, cudaStreamNonBlocking)));
  return stream;
}

}  // namespace replayssm::cuda
