// A depth: how many tokens of a sequence something covers. Position i is the token that takes a
// sequence from depth i to depth i + 1.
#pragma once

#include <compare>
#include <cstdint>

namespace replayssm {

struct Depth {
  std::int32_t tokens = 0;

  constexpr auto operator<=>(const Depth&) const = default;
  constexpr Depth operator+(std::int32_t n) const { return Depth{tokens + n}; }
  constexpr Depth operator-(std::int32_t n) const { return Depth{tokens - n}; }
  constexpr std::int32_t operator-(Depth other) const { return tokens - other.tokens; }
  constexpr Depth& operator+=(std::int32_t n) {
    tokens += n;
    return *this;
  }
};

}  // namespace replayssm
