// Owned, 64-byte aligned, fixed-size storage for numbers.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

#include "core/huge_pages.h"

namespace replayssm {

// Owns `size` elements of a trivially copyable T, zeroed; in large pages where it is large and the
// system has them. Move-only; the data pointer is stable for the buffer's life, moves included.
template <class T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size)
      : data_(static_cast<T*>(::operator new(size * sizeof(T), kAlignment))), size_(size) {
    if (size == 0) return;
    prefer_huge_pages(data_.get(), bytes());
    std::memset(static_cast<void*>(data_.get()), 0, bytes());
  }

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
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(T* p) const { ::operator delete(static_cast<void*>(p), kAlignment); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace replayssm
