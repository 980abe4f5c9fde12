// What one thread needs to work on one key head, allocated once.
#pragma once

#include "core/aligned_buffer.h"
#include "ops/cpu/fetch_ahead.h"
#include "ops/cpu/span_plan.h"
#include "ops/cpu/state_layout.h"

namespace replayssm::cpu {

// History of a token: at most 31 records and the token itself.
inline constexpr int kHistory = 32;

struct StepScratch {
  template <class T>
  using Buffer = AlignedBuffer<T>;

  SpanPlan plan;
  FetchAhead ahead;  // what the next value head will read

  // Of the key head. Pointers lead into the ring, the inputs or `key_rows`.
  std::array<const float*, kSpanRecords> keys{};  // [record] raw key, [K]
  Buffer<float> key_scales{kSpanRecords};         // [record] inverse norm
  std::array<const float*, kSpanTokens> queries{};
  Buffer<float> query_scales{kSpanTokens};  // inverse norm times K^-1/2
  Buffer<float> key_rows{static_cast<std::size_t>(kSpanRecords) * kKeyDim};
  Buffer<float> key_dots{static_cast<std::size_t>(kSpanTokens) * kHistory};    // <k_j, k_i>
  Buffer<float> query_dots{static_cast<std::size_t>(kSpanTokens) * kHistory};  // <k_j, q_i>

  // Of the value head at hand.
  std::array<const float*, kSpanRecords> decays{};       // [record] exp(gate), [gate_width]
  std::array<const float*, kSpanRecords> corrections{};  // [record] d as stored, [V]
  Buffer<float> correction_rows{static_cast<std::size_t>(kSpanRecords) * kValueDim};
  Buffer<float> key_weights{static_cast<std::size_t>(kSpanTokens) * kHistory};
  Buffer<float> query_weights{static_cast<std::size_t>(kSpanTokens) * kHistory};
  Buffer<float> key_factors{kSpanTokens};               // times S0 (decayed k)
  Buffer<float> query_factors{kSpanTokens};             // times S0 (decayed q)
  std::array<const float*, 2 * kSpanTokens> vectors{};  // what S0 is multiplied by: k, q of each
  Buffer<float> vector_rows{2 * static_cast<std::size_t>(kSpanTokens) * kKeyDim};
  Buffer<float> fold_keys{static_cast<std::size_t>(kSpanRecords) * kKeyDim};  // decayed keys
  Buffer<float> fold_decays{(2 * static_cast<std::size_t>(kSpanTokens) + 4) * kKeyDim};
  Buffer<float> running{kKeyDim};                                             // a product of decays
  Buffer<float> decay_rows{static_cast<std::size_t>(kSpanTokens) * kKeyDim};  // the tokens' own

  // Of the stripe at hand.
  Buffer<float> products{2 * static_cast<std::size_t>(kSpanTokens) * kStripe};
  Buffer<float> state{kStripeElements};  // in the state's own type
};

}  // namespace replayssm::cpu
