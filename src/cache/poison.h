// Filling memory that nobody may read with a pattern that shows when somebody does.
#pragma once

namespace replayssm {

// on: what a pool hands out and what it takes back is filled with 0xff, which is NaN in every
// floating-point type. For tests; a correct engine gives the same bits with and without.
enum class Poison { off, on };

inline constexpr unsigned char kPoisonByte = 0xff;

}  // namespace replayssm
