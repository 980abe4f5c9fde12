// Memory that reads as zero.
#pragma once

#include <cstddef>

namespace replayssm {

// At least `bytes` bytes, aligned to 64 and zero; large ones are page-aligned, in large pages where
// the system has them, and take room only where they were written. Throws std::bad_alloc. To be
// given back to free_zeroed() with the same size.
void* allocate_zeroed(std::size_t bytes);
void free_zeroed(void* data, std::size_t bytes) noexcept;

}  // namespace replayssm
