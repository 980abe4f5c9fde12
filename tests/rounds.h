// How often a test repeats itself where the number is a matter of time, not of coverage.
#pragma once

#include <algorithm>

namespace replayssm::tests {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Sanitized programs run about ten times slower, and look at every access of every round: they get
// a fifth of the rounds, at least one.
inline constexpr int kSanitizedShare = 5;

constexpr int rounds(int plain) {
  return kSanitized ? std::max(1, plain / kSanitizedShare) : plain;
}

}  // namespace replayssm::tests
