// Filling memory that nobody may read with a pattern that shows when somebody does.
#pragma once

#include <span>

#include "core/memory_space.h"

namespace replayssm {

// on: what a pool hands out and what it takes back is filled with 0xff, which is NaN in every
// floating-point type. For tests; a correct engine gives the same bits with and without.
enum class Poison { off, on };

inline constexpr unsigned char kPoisonByte = 0xff;

// Fills where `poison` is on. Whoever gives memory back has nobody to report an error of the space
// to; the space's next operation fails, too.
inline void fill_with(Poison poison, MemorySpace& space, std::span<const MemoryRegion> regions) {
  if (poison == Poison::on) static_cast<void>(space.fill(regions, kPoisonByte));
}

}  // namespace replayssm
