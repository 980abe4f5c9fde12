// How this backend lays out a slot of one layer: [value_heads, V / 32, K, 32]. The value index is
// innermost, so that S x needs no sum across lanes; 32 values over all keys, a stripe, are one
// contiguous run of 16 KiB in fp32 that stays in the first-level cache while all tokens of a step
// use it. Stripes never meet: a value's row of S depends on no other.
#pragma once

#include <cstddef>

#include "ops/shape.h"

namespace replayssm::cpu {

inline constexpr int kStripe = 32;
inline constexpr int kStripes = kValueDim / kStripe;
inline constexpr std::size_t kStripeElements = static_cast<std::size_t>(kKeyDim) * kStripe;
inline constexpr std::size_t kHeadElements = static_cast<std::size_t>(kKeyDim) * kValueDim;

// The offset within a slot of value row v, key column k of one head.
constexpr std::size_t state_offset(int head, int v, int k) {
  return head * kHeadElements + (v / kStripe) * kStripeElements +
         static_cast<std::size_t>(k) * kStripe + v % kStripe;
}

}  // namespace replayssm::cpu
