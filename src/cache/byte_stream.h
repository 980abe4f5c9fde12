// Writing values to bytes and reading them back with bounds checks. Little-endian machines only,
// as everything else here.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/result.h"

namespace replayssm {

class ByteWriter {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) { put_bytes({reinterpret_cast<const std::byte*>(&value), sizeof(T)}); }
  void put_bytes(std::span<const std::byte> bytes) {
    const std::size_t end = bytes_.size();
    bytes_.resize(end + bytes.size());
    if (!bytes.empty()) std::memcpy(bytes_.data() + end, bytes.data(), bytes.size());
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Does not own the bytes.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  // Refused when the bytes end early; then the value is unchanged.
  template <class T>
  requires std::is_trivially_copyable_v<T> Status get(T& value) {
    return get_bytes({reinterpret_cast<std::byte*>(&value), sizeof(T)});
  }
  Status get_bytes(std::span<std::byte> into) {
    if (into.size() > rest_.size()) {
      return Error{fmt::format("serialised sequence: {} bytes are left, {} are needed",
                               rest_.size(), into.size())};
    }
    if (!into.empty()) std::memcpy(into.data(), rest_.data(), into.size());
    rest_ = rest_.subspan(into.size());
    return {};
  }
  std::size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace replayssm
