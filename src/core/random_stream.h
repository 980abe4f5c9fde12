// Random numbers that depend on a request's seed and the number of its token, on nothing else.
#pragma once

#include <cstdint>

namespace replayssm {

// SplitMix64's output function (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
// OOPSLA 2014).
constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Uniform in [0, 1), 53 bits: element `index` of the SplitMix64 sequence that starts at the mixed
// seed. A position in the stream is its whole state, so a paused request goes on where it was, and
// batch mates cannot move it.
constexpr double uniform_at(std::uint64_t seed, std::uint64_t index) {
  constexpr std::uint64_t kGamma = 0x9e3779b97f4a7c15u;
  const std::uint64_t start = mix_bits(seed + kGamma);
  return static_cast<double>(mix_bits(start + kGamma * (index + 1)) >> 11) * 0x1p-53;
}

}  // namespace replayssm
