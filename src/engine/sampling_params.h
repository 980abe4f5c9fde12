// How a request's tokens are chosen, with the precedence of the values.
#pragma once

#include <cstdint>
#include <optional>

#include "core/result.h"
#include "model/generation_config.h"

namespace replayssm {

// Resolved values; consistent when they come from resolve_sampling().
struct SamplingParams {
  double temperature = 1.0;  // 0: greedy
  int top_k = 0;             // 0: off
  double top_p = 1.0;
  double min_p = 0.0;
  double repetition_penalty = 1.0;  // over prompt and output
  double presence_penalty = 0.0;    // over output
  double frequency_penalty = 0.0;   // over output
  std::uint64_t seed = 0;

  bool greedy() const { return temperature == 0.0; }
  bool penalises() const {
    return repetition_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0;
  }
};

// What a request says; what it does not say stays empty.
struct SamplingRequest {
  std::optional<double> temperature;
  std::optional<int> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::optional<std::uint64_t> seed;
};

// Request over the checkpoint's generation_config over the engine's defaults (those of
// SamplingParams). `do_sample: false` in the file means greedy for a request without a temperature.
// `fallback_seed` is used where the request has none. Errors name field, value and range.
Result<SamplingParams> resolve_sampling(const SamplingRequest& request,
                                        const GenerationDefaults& defaults,
                                        std::uint64_t fallback_seed);

}  // namespace replayssm
