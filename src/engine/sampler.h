// Choosing a token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/strong_id.h"
#include "engine/sampling_params.h"
#include "model/token_choice.h"

namespace replayssm {

// What one request's sampling remembers: parameters, which tokens it has seen, and how many it has
// put out. The random number of an output token depends on the seed and the number of that token.
class SamplingState {
 public:
  SamplingState() = default;
  explicit SamplingState(const SamplingParams& params) : params_(params) {}

  const SamplingParams& params() const { return params_; }
  void set_seed(std::uint64_t seed) { params_.seed = seed; }
  // Output tokens so far.
  std::uint64_t outputs() const { return outputs_; }

  void add_prompt(std::span<const TokenId> tokens);
  void add_output(TokenId token);

  // How output token number `index` is to be chosen, after the tokens that were added: without
  // mask, bias and log-probabilities, which are not a sampling parameter's. `seen` is filled where
  // there are penalties, and must live as long as what is returned.
  TokenChoice choice(std::uint64_t index, std::vector<SeenToken>& seen) const;

 private:
  SamplingParams params_;
  std::uint64_t outputs_ = 0;
  std::unordered_map<TokenId, std::int32_t> seen_;  // how often in the output
};

// Some tokens with their weights; all others have none. The order is that in which draw() counts.
struct TokenDistribution {
  struct Entry {
    TokenId token;
    double weight;  // relative: probability times total
  };
  std::vector<Entry> entries;
  double total = 0;  // of the weights, summed in their order
};

// The token at `uniform`, of [0, 1), of the way through the weights. Precondition: total > 0.
TokenId draw(const TokenDistribution& distribution, double uniform);

// The steps, in this order (Hugging Face's, so that equal settings mean the same):
//   repetition penalty  logit / r if positive, logit * r otherwise, for tokens of prompt and output
//   frequency, presence logit - f * count - p, for tokens of the output
//   bias
//   mask
//   greedy              temperature 0: the largest logit, the smallest id among equals
//   temperature         logit / temperature
//   top-k               the k largest, smaller ids first among equals
//   top-p               the fewest most likely tokens whose probabilities reach top_p together
//   min-p               those at least min_p times as likely as the most likely one
//   draw                by one random number, over the rest
// Sums are in double, in a fixed order. Owns scratch; one per engine thread.
class Sampler {
 public:
  // logits [vocab_size], without the vocabulary's padding; not changed. Errors: a logit that is not
  // finite (checked first, and with penalties and bias; the request ends), a mask that allows
  // nothing. The caller calls add_output with what it accepts.
  Result<TokenId> sample(std::span<const float> logits, const SamplingState& state,
                         LogitMask mask = {}, LogitBias bias = {});

  // What sample() draws from: all steps but the last. Greedy: one token. Valid until the next call.
  Result<const TokenDistribution*> distribution(std::span<const float> logits,
                                                const SamplingState& state, LogitMask mask = {},
                                                LogitBias bias = {});
  // The same for a choice.
  Result<const TokenDistribution*> distribution(std::span<const float> logits,
                                                const TokenChoice& choice);

  // The choice itself, with its log-probabilities.
  ChosenToken choose(std::span<const float> logits, const TokenChoice& choice);

 private:
  Status cut_off(std::span<const float> logits, const TokenChoice& choice);

  std::vector<float> adjusted_;
  std::vector<SeenToken> seen_;
  TokenDistribution distribution_;
};

// The largest logit's index, the smallest among equals; the first index if all are -infinity.
TokenId argmax(std::span<const float> logits);

// Refused when a logit is NaN or infinite, naming the first such token.
Status check_finite(std::span<const float> logits);

}  // namespace replayssm
