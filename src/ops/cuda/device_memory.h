// Owned device memory and streams.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/result.h"

namespace replayssm::cuda {

// Until everything that `stream` holds has happened. Every wait of the host for a whole stream is
// made here; waits_for_streams() says how many there were in this process. Waits for an event are
// not among them.
Status wait_for(cudaStream_t stream);
std::int64_t waits_for_streams();

// Owns `bytes` of device memory, not initialised. Move-only. Freeing waits for the device, as
// cudaFree does, so a buffer is not freed between the launches of a step.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  ~DeviceBuffer() { cudaFree(data_); }
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  // Error: what the runtime says, out of memory for one.
  static Result<DeviceBuffer> make(std::size_t bytes);
  // A copy of host numbers, there for every stream.
  static Result<DeviceBuffer> copy_of(const void* from, std::size_t bytes);

  // The whole buffer from and to host memory, after everything that `stream` holds; both wait.
  Status put(const void* from, cudaStream_t stream);
  Status get(void* to, cudaStream_t stream) const;

  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(DeviceBuffer& other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Owns a stream that does not wait for the default one.
class Stream {
 public:
  Stream() = default;
  ~Stream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  Stream(Stream&& other) noexcept { std::swap(stream_, other.stream_); }
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  static Result<Stream> make();
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace replayssm::cuda
