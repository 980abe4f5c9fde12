// How often a test repeats itself where the number is a matter of time, not of coverage.
#pragma once

#include <algorithm>

namespace replayssm::tests {

#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = kThreadSanitizer;
#endif

// Sanitized programs run about ten times slower, and look at every access of every round: they get
// a fifth of the rounds, at least one.
inline constexpr int kSanitizedShare = 5;

constexpr int rounds(int plain) {
  return kSanitized ? std::max(1, plain / kSanitizedShare) : plain;
}

}  // namespace replayssm::tests
