// What a checkpoint makes of given answers, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/result.h"
#include "core/strong_id.h"
#include "engine/engine.h"

namespace replayssm::cli {

struct GivenAnswer {
  std::vector<TokenId> tokens;  // prompt, then answer
  std::size_t prompt = 0;       // tokens of the prompt: at least 1, fewer than tokens.size()
};

// Natural logarithms of the probabilities that the model gives to every token of every answer,
// after the prompt and the answer's tokens before it (teacher forcing), one vector an answer.
// `options` as for the evaluation of one request at a time: sizes are set here. `finished` is
// called after each answer with their number; if it returns false, the work ends with an error.
Result<std::vector<std::vector<double>>> log_probabilities(
    const EngineOptions& options, std::span<const GivenAnswer> answers,
    const std::function<bool(std::size_t)>& finished);

// Two engines' log-probabilities of the same tokens.
struct LogProbabilityDifference {
  std::int64_t tokens = 0;
  double mean_expected = 0;  // nats a token
  double mean_found = 0;
  double mean_difference = 0;  // of absolute differences
  double largest_difference = 0;
};
// Precondition: vectors of equal sizes.
LogProbabilityDifference compare_log_probabilities(std::span<const std::vector<double>> expected,
                                                   std::span<const std::vector<double>> found);

}  // namespace replayssm::cli
