#include "core/memory_space.h"

#include <cstring>

#include "core/zeroed_memory.h"

namespace replayssm {
namespace {

class HostSpace final : public MemorySpace {
 public:
  bool on_host() const override { return true; }

  Result<std::byte*> allocate(std::size_t bytes) override {
    try {
      return static_cast<std::byte*>(allocate_zeroed(bytes));
    } catch (const std::bad_alloc&) {
      return Error{fmt::format("memory: {} bytes were refused by the system", bytes)};
    }
  }
  void free(std::byte* data, std::size_t bytes) noexcept override { free_zeroed(data, bytes); }

  Status copy(std::span<const MemoryCopy> copies) override {
    for (const MemoryCopy& each : copies) {
      if (each.bytes == 0) continue;
      for (std::size_t i = 0; i < each.count; ++i) {
        std::memcpy(each.to + i * each.to_pitch, each.from + i * each.from_pitch, each.bytes);
      }
    }
    return {};
  }
  Status fill(std::span<const MemoryRegion> regions, unsigned char byte) override {
    for (const MemoryRegion& region : regions) {
      if (region.bytes == 0) continue;
      for (std::size_t i = 0; i < region.count; ++i) {
        std::memset(region.piece(i), byte, region.bytes);
      }
    }
    return {};
  }
  Status read(std::span<const MemoryCopy> copies) override { return copy(copies); }
  Status write(std::span<const MemoryCopy> copies) override { return copy(copies); }
};

}  // namespace

Result<std::byte*> MemorySpace::allocate_outside(std::size_t bytes) {
  return host_space().allocate(bytes);
}

void MemorySpace::free_outside(std::byte* data, std::size_t bytes) noexcept {
  host_space().free(data, bytes);
}

MemorySpace& host_space() {
  static HostSpace space;
  return space;
}

SpaceBuffer::SpaceBuffer(MemorySpace& space, std::size_t bytes) : space_(&space), bytes_(bytes) {
  auto data = space.allocate(bytes);
  if (!data) throw OutOfMemory(data.error());
  data_ = *data;
}

}  // namespace replayssm
