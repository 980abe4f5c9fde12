// How much of its grammar one request may have worked out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace replayssm::grammar {

// A bucket: full at first, emptied by the places of the automaton that are looked at for the first
// time, refilled by the bytes of the text. So it bounds one mask by kMost, and all masks of a text
// of n bytes by kMost + n * kPerByte. By bench/grammar_bench's count, schemas that people write
// need up to 75,000 places for a mask over 250,000 tokens and 5,500 for a byte.
class WorkAllowance {
 public:
  static constexpr std::uint64_t kMost = 1u << 20;
  static constexpr std::uint64_t kPerByte = 1u << 14;

  // False, and the bucket is empty, if there is less than that.
  bool spend(std::uint64_t places) {
    const bool enough = left_ >= places;
    left_ = enough ? left_ - places : 0;
    spent_ += places;
    return enough;
  }
  void earn(std::size_t bytes) { left_ = std::min(left_ + bytes * kPerByte, kMost); }

  std::uint64_t left() const { return left_; }
  // In all, what was not granted included.
  std::uint64_t spent() const { return spent_; }

 private:
  std::uint64_t left_ = kMost;
  std::uint64_t spent_ = 0;
};

}  // namespace replayssm::grammar
