// Memory that a backend's operations work on, for tests that keep every array on the host.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace replayssm::tests {

// Takes, fills and reads memory of a device. Failures end the program.
class BackendMemory {
 public:
  virtual ~BackendMemory() = default;
  virtual void* take(std::size_t bytes) = 0;
  virtual void give_back(void* memory) = 0;
  // put() has read `from` when it returns, get() has filled `to`; operations follow in order.
  virtual void put(void* memory, const void* from, std::size_t bytes) = 0;
  virtual void get(void* to, const void* memory, std::size_t bytes) = 0;
};

// A host array, lent to operations: on a backend with memory of its own the operations see a copy.
// The host array stays where it is for as long as it is lent. Without a BackendMemory the array
// itself is what operations see, and put() and get() do nothing.
template <class T>
class Lent {
 public:
  Lent() = default;
  Lent(BackendMemory* memory, T* host, std::size_t count)
      : memory_(memory), host_(host), bytes_(count * sizeof(T)) {
    if (memory_ != nullptr) device_ = memory_->take(bytes_);
  }
  Lent(BackendMemory* memory, std::span<T> host) : Lent(memory, host.data(), host.size()) {}
  ~Lent() {
    if (device_ != nullptr) memory_->give_back(device_);
  }
  Lent(Lent&& other) noexcept { swap(other); }
  Lent& operator=(Lent&& other) noexcept {
    swap(other);
    return *this;
  }

  // Where the backend sees the array.
  T* address() const { return memory_ == nullptr ? host_ : static_cast<T*>(device_); }
  // The host's numbers to the backend; the address.
  T* put() {
    if (memory_ != nullptr) memory_->put(device_, host_, bytes_);
    return address();
  }
  // The backend's numbers to the host.
  void get() {
    if (memory_ != nullptr)
      memory_->get(const_cast<std::remove_const_t<T>*>(host_), device_, bytes_);
  }

 private:
  void swap(Lent& other) {
    std::swap(memory_, other.memory_);
    std::swap(host_, other.host_);
    std::swap(bytes_, other.bytes_);
    std::swap(device_, other.device_);
  }
  BackendMemory* memory_ = nullptr;
  T* host_ = nullptr;
  std::size_t bytes_ = 0;
  void* device_ = nullptr;
};

}  // namespace replayssm::tests
