#include "failing_allocations.h"

#include <cstdlib>
#include <new>

namespace {

thread_local long countdown = -1;

bool fails_now() { return countdown >= 0 && countdown-- == 0; }

void* checked(void* p) {
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

void* operator new(std::size_t size) {
  if (fails_now()) throw std::bad_alloc();
  return checked(std::malloc(size == 0 ? 1 : size));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  if (fails_now()) throw std::bad_alloc();
  const auto line = static_cast<std::size_t>(alignment);
  return checked(std::aligned_alloc(line, (size / line + 1) * line));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace replayssm {

void fail_allocation(long after) { countdown = after; }
long allocations_until_failure() { return countdown; }

}  // namespace replayssm
