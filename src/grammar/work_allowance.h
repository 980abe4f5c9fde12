// How much of its grammar one request may have worked out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace replayssm::grammar {

// A bucket: full at first, emptied by the places of the automaton that are looked at for the first
// time, refilled by the bytes of the text. So it bounds one mask by kMost, and all masks of a text
// of n bytes by kMost + n * kPerByte. A place takes 0.1 to 0.3 us. Patterns that people write need
// up to 70,000 places for a mask over 150,000 tokens and 2,300 for a byte.
class WorkAllowance {
 public:
  static constexpr std::uint64_t kMost = 1u << 20;
  static constexpr std::uint64_t kPerByte = 1u << 14;

  // False, and the bucket is empty, if there is less than that.
  bool spend(std::uint64_t places) {
    const bool enough = left_ >= places;
    left_ = enough ? left_ - places : 0;
    return enough;
  }
  void earn(std::size_t bytes) { left_ = std::min(left_ + bytes * kPerByte, kMost); }

  std::uint64_t left() const { return left_; }

 private:
  std::uint64_t left_ = kMost;
};

}  // namespace replayssm::grammar
