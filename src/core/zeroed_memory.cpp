#include "core/zeroed_memory.h"

#include <cstring>
#include <new>

#include "core/huge_pages.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace replayssm {
namespace {

constexpr std::align_val_t kAlignment{64};

// From here on memory comes from the system, which gives zeros when they are first looked at. A
// pool that is planned for the busiest hour then costs what is in use. Not under AddressSanitizer:
// it looks at the ends of what it has allocated itself.
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kMapped = std::size_t{1} << 20;
bool is_mapped(std::size_t bytes) { return bytes >= kMapped; }
#else
bool is_mapped(std::size_t) { return false; }
#endif

}  // namespace

void* allocate_zeroed(std::size_t bytes) {
#ifdef __linux__
  if (is_mapped(bytes)) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    prefer_huge_pages(data, bytes);
    return data;
  }
#endif
  void* data = ::operator new(bytes, kAlignment);
  prefer_huge_pages(data, bytes);
  std::memset(data, 0, bytes);
  return data;
}

void free_zeroed(void* data, std::size_t bytes) noexcept {
#ifdef __linux__
  if (is_mapped(bytes)) {
    munmap(data, bytes);
    return;
  }
#endif
  ::operator delete(data, kAlignment);
}

}  // namespace replayssm
