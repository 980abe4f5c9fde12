// Owned page-locked host memory, and events, for copies that the host does not wait for.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

#include "core/result.h"
#include "ops/cuda/cuda_check.h"
#include "ops/cuda/device_memory.h"

namespace replayssm::cuda {

// Owns `bytes` of page-locked memory, not initialised. Move-only.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  ~PinnedBuffer() { cudaFreeHost(data_); }
  PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  // Error: what the runtime says, out of memory for one.
  static Result<PinnedBuffer> make(std::size_t bytes) {
    PinnedBuffer buffer;
    const Status made = REPLAYSSM_CUDA_STATUS(cudaMallocHost(&buffer.data_, bytes));
    if (!made) {
      cudaGetLastError();  // or the next launch would report it, too
      return made.error();
    }
    buffer.bytes_ = bytes;
    return Result<PinnedBuffer>(std::move(buffer));
  }

  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(PinnedBuffer& other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// A place in a stream that the host can wait for. Move-only.
class Event {
 public:
  Event() = default;
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  Event(Event&& other) noexcept { std::swap(event_, other.event_); }
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  static Result<Event> make() {
    Event event;
    REPLAYSSM_TRY(
        REPLAYSSM_CUDA_STATUS(cudaEventCreateWithFlags(&event.event_, cudaEventDisableTiming)));
    return Result<Event>(std::move(event));
  }
  Status record(cudaStream_t stream) const {
    return REPLAYSSM_CUDA_STATUS(cudaEventRecord(event_, stream));
  }
  // Later work of the stream comes after the newest record().
  Status hold_back(cudaStream_t stream) const {
    return REPLAYSSM_CUDA_STATUS(cudaStreamWaitEvent(stream, event_, 0));
  }
  // Whether the newest record() is reached. Also where the device has failed: what comes next says
  // so.
  bool reached() const {
    if (cudaEventQuery(event_) != cudaErrorNotReady) return true;
    cudaGetLastError();  // or the next launch would report it
    return false;
  }
  // Until the newest record() is reached; at once if there was none.
  Status wait() const { return REPLAYSSM_CUDA_STATUS(cudaEventSynchronize(event_)); }

 private:
  cudaEvent_t event_ = nullptr;
};

// Makes room for `bytes` where there is less, twice as much for the next time; what was held is
// lost. Error: as PinnedBuffer::make() and DeviceBuffer::make().
inline Status grow(PinnedBuffer& pinned, std::size_t bytes) {
  if (bytes > pinned.bytes()) {
    auto made = PinnedBuffer::make(2 * bytes);
    if (!made) return made.error();
    pinned = std::move(*made);
  }
  return {};
}
inline Status grow(PinnedBuffer& pinned, DeviceBuffer& device, std::size_t bytes) {
  REPLAYSSM_TRY(grow(pinned, bytes));
  if (bytes > device.bytes()) {
    auto made = DeviceBuffer::make(2 * bytes);
    if (!made) return made.error();
    device = std::move(*made);
  }
  return {};
}

}  // namespace replayssm::cuda
