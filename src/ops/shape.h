// The shape of a linear-attention layer's heads, shared by every operation and backend.
#pragma once

#include <cstddef>

#include "core/result.h"

namespace replayssm {

inline constexpr int kKeyDim = 128;    // K, also the dimension of queries
inline constexpr int kValueDim = 128;  // V
inline constexpr int kConvWidth = 4;   // taps of the causal convolution

// Gated DeltaNet has one log gate per head, Kimi Delta Attention one per key channel.
enum class GateKind { gdn, kda };

// value_heads is a multiple of key_heads; value head j uses key head j / group().
struct HeadShape {
  GateKind gate = GateKind::gdn;
  int key_heads = 1;
  int value_heads = 1;

  constexpr int group() const { return value_heads / key_heads; }
  constexpr int gate_width() const { return gate == GateKind::gdn ? 1 : kKeyDim; }
  // Whether a gate may be bounded from below (GateArgs::lower_bound).
  constexpr bool gate_has_bound() const { return gate == GateKind::kda; }
  // Channels of one token's packed q | k | v row: q [H, K], k [H, K], v [HV, V].
  constexpr int channels() const { return 2 * key_heads * kKeyDim + value_heads * kValueDim; }
  constexpr std::size_t state_elements() const {
    return static_cast<std::size_t>(value_heads) * kKeyDim * kValueDim;
  }
  constexpr bool operator==(const HeadShape&) const = default;
};

inline Status check(const HeadShape& shape) {
  if (shape.key_heads < 1) return refuse("key_heads", shape.key_heads, "at least 1");
  if (shape.value_heads < 1 || shape.value_heads % shape.key_heads != 0) {
    return refuse("value_heads", shape.value_heads,
                  fmt::format("a positive multiple of key_heads ({})", shape.key_heads));
  }
  return {};
}

}  // namespace replayssm
