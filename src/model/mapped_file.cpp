#include "model/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace replayssm {

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const auto failed = [&] {
    return Error{fmt::format("{}: {}", path.string(), std::strerror(errno))};
  };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return failed();
  struct stat about = {};
  void* data = MAP_FAILED;
  Result<MappedFile> result = Error{};
  if (::fstat(file, &about) != 0) {
    result = failed();
  } else if (!S_ISREG(about.st_mode)) {
    result = Error{fmt::format("{}: not a regular file", path.string())};
  } else if (about.st_size == 0) {
    result = Error{fmt::format("{}: empty", path.string())};
  } else if (const auto size = static_cast<std::size_t>(about.st_size);
             (data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0)) == MAP_FAILED) {
    result = failed();
  } else {
    result = MappedFile(static_cast<const std::byte*>(data), size);
  }
  ::close(file);  // the mapping outlives the descriptor
  return result;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace replayssm
