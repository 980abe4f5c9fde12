// A whole file, read-only, in the address space.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "core/result.h"

namespace replayssm {

// Owns one mapping. Move-only; `bytes()` keeps its address when the owner is moved. The file must
// not be shortened while it is mapped: the kernel answers a read past its end with a signal.
class MappedFile {
 public:
  // Errors name the file: missing, not a regular file, unreadable, empty.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const std::byte* data, std::size_t size) : data_(data), size_(size) {}

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace replayssm
