// Addresses that kernels read and write 16 bytes at a time.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/result.h"

namespace replayssm::cuda {

// Error: the address is no multiple of 16. Null is one.
inline Status aligned(std::string_view field, const void* pointer) {
  if (reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0) return {};
  return refuse(field, fmt::format("address {}", pointer), "a multiple of 16");
}

}  // namespace replayssm::cuda
