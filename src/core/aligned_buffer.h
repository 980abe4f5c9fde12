// Owned, 64-byte aligned, fixed-size storage for numbers.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>

#include "core/zeroed_memory.h"

namespace replayssm {

// Owns `size` elements of a trivially copyable T, zeroed; large buffers take room only where they
// were written (allocate_zeroed()). Move-only; the data pointer is stable for the buffer's life,
// moves included.
template <class T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size)
      : data_(static_cast<T*>(allocate_zeroed(size * sizeof(T))), Free{size * sizeof(T)}),
        size_(size) {}

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(T); }
  T& operator[](std::size_t i) { return data_.get()[i]; }
  const T& operator[](std::size_t i) const { return data_.get()[i]; }
  std::span<T> span() { return {data(), size_}; }
  std::span<const T> span() const { return {data(), size_}; }

  // Fills every byte; 0xff makes floats NaN.
  void fill_bytes(unsigned char byte) {
    if (size_ != 0) std::memset(static_cast<void*>(data()), byte, bytes());
  }

 private:
  struct Free {
    std::size_t bytes = 0;
    void operator()(T* p) const { free_zeroed(p, bytes); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace replayssm
