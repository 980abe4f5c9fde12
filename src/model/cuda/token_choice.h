// What the kernels that choose tokens read and write; see token_choice.cuh and, for the meaning of
// the numbers, model/token_choice.h.
#pragma once

#include <cstdint>

namespace replayssm::cuda {

inline constexpr int kChoiceBins = 2048;
inline constexpr int kChoiceIdsOfBin = 1024;  // the most that a bin of ids may have
inline constexpr int kChoiceVocabulary = kChoiceBins * kChoiceIdsOfBin;  // the largest

// Counts and sums of weights of candidates.
struct ChoiceBins {
  std::uint64_t sum[kChoiceBins];
  std::uint32_t count[kChoiceBins];
};

// Candidates of a row that goes by logits: those of all coarse bins that its cuts can leave, or,
// where they are more than there is room for, of the last of these bins, or none.
inline constexpr int kChoiceListed = 4096;
struct ChoiceList {
  std::uint32_t count;  // 0: there is no list
  std::int32_t first_bin, last_bin;
  std::int32_t token[kChoiceListed];
};

// A token whose logit is changed before the choice.
struct LogitChange {
  std::int32_t token = 0;
  std::int32_t in_output = -1;  // of a penalised token how often it was put out; -1: no penalty
  float added = 0;
  float before = 0;  // the logit as it was, written by the kernel that changes it
};

// One row of logits.
struct RowChoice {
  double temperature = 1;
  double top_p = 1;
  double min_p = 0;
  double uniform = 0;
  double repetition_penalty = 1;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  const std::uint32_t* mask = nullptr;  // device; null: every token
  LogitChange* changes = nullptr;       // device
  std::int32_t change_count = 0;
  std::int32_t top_k = 0;         // 0: off, or not fewer than the candidates
  std::int32_t draws = 0;         // not 0: a token is drawn; otherwise the best one stands
  std::int32_t by_logit = 0;      // not 0: in the order of logits, see token_choice.cuh
  std::int32_t top_logprobs = 0;  // alternatives; -1: no log-probabilities
  std::int32_t logprobs_of = -1;  // a token; -1: the chosen one
};

// Alternatives that can be had with log-probabilities: kMostAlternatives of model/token_choice.h.
inline constexpr int kChoiceAlternatives = 32;

// Log-probabilities of one row. Those of alternatives are their logits less the normaliser.
struct RowLogprobs {
  double normaliser = 0;  // log of the sum of the exponentials of all logits
  float logit = 0;        // of the token that they are asked of
  std::int32_t alternatives = 0;
  std::int32_t token[kChoiceAlternatives] = {};
  float token_logit[kChoiceAlternatives] = {};
};

// In the place of a chosen token.
inline constexpr int kNotFinite = -1;       // a logit is not finite
inline constexpr int kNothingAllowed = -2;  // the mask allows no token

}  // namespace replayssm::cuda
