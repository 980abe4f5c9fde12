// How the token of one row of logits is to be chosen, and what was chosen: between an engine and a
// model that chooses itself, on a device that keeps the logits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/strong_id.h"

namespace replayssm {

// Bit t of word t / 32 says whether token t may be chosen. Empty: every token may.
using LogitMask = std::span<const std::uint32_t>;
// Tokens and what is added to their logits. Tokens outside the vocabulary are ignored.
using LogitBias = std::span<const std::pair<TokenId, float>>;

// A token of the prompt or the output, which penalties are about.
struct SeenToken {
  TokenId token = 0;
  std::int32_t in_output = 0;  // how often
};

// The meaning of the numbers, and the order of the steps, are those of engine/sampler.h. The lists
// are the caller's and are read until the call that they are given to returns.
struct TokenChoice {
  double temperature = 1.0;  // 0: greedy
  int top_k = 0;             // 0: off
  double top_p = 1.0;
  double min_p = 0.0;
  double repetition_penalty = 1.0;
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  double uniform = 0.0;                  // the random number of this token, of [0, 1)
  std::span<const SeenToken> seen = {};  // no token twice
  LogitBias bias = {};
  LogitMask mask = {};
  // Log-probabilities of the chosen token and of so many alternatives; empty: none.
  std::optional<int> top_logprobs = {};
  TokenId logprobs_of = -1;  // this one's instead of the chosen one's; -1: the chosen one's

  bool greedy() const { return temperature == 0.0 || top_k == 1; }
  bool penalises() const {
    return repetition_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0;
  }
};

// The most alternatives that a model which chooses itself gives.
inline constexpr int kMostAlternatives = 32;

// Natural logarithms, of the model's distribution before penalties, temperature and masks.
struct TokenLogprob {
  TokenId token = 0;
  double logprob = 0;
};
struct TokenLogprobs {
  double logprob = 0;             // of the token itself
  std::vector<TokenLogprob> top;  // the most likely tokens, most likely first, smaller ids first
};

struct ChosenToken {
  TokenId token = -1;                     // none with an error
  std::optional<TokenLogprobs> logprobs;  // if asked for
  std::optional<Error> error;             // why nothing could be chosen
  bool finite = true;                     // false: logits that are not finite are the error
};

}  // namespace replayssm
