// What a request demands of its output tokens besides sampling parameters: which may come, which
// end it, and what is to be reported of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/result.h"
#include "engine/logprobs.h"
#include "engine/sampler.h"
#include "grammar/reasoning_gate.h"

namespace replayssm {

struct GenerationRequest;

// The state of one choice. A copy is a fork. Not for two threads at a time.
class OutputRules {
 public:
  OutputRules() = default;
  // `eos`: the model's end tokens. Copies the request's constraint.
  OutputRules(const GenerationRequest& request, std::span<const TokenId> eos);

  // What may be sampled as the output token number `outputs`, for a vocabulary of `vocab_size`;
  // empty: everything. Valid until the next call. An error if the constraint is too costly.
  Result<LogitMask> mask(int outputs, int vocab_size);
  // Added to logits before sampling.
  std::span<const std::pair<TokenId, float>> logit_bias() const { return logit_bias_; }

  // To be told of every output token. Refused when the constraint does not allow it or is too
  // costly.
  Status accept(TokenId token);
  // Whether this token ends the output: an end token unless they are ignored, a stop token id, or
  // the token that completes a constraint.
  bool ends(TokenId token) const;

  // Whether what may come, and what is told of it, does not depend on the tokens before it.
  bool foreseeable() const { return !constraint_; }
  // Whether every token may come as output number `outputs` and later.
  bool unmasked(int outputs) const { return !constraint_ && outputs >= min_tokens_; }

  // Whether the output ends behind what it has: its constraint allows nothing more, and the model
  // has no end token to say so.
  bool complete() const;

  // Alternatives wanted with every output token; empty: no log-probabilities.
  std::optional<int> top_logprobs() const { return top_logprobs_; }
  // The same for the prompt's tokens.
  std::optional<int> prompt_logprobs() const { return prompt_logprobs_; }
  // The prompt's log-probabilities have been given.
  void prompt_is_done() { prompt_logprobs_.reset(); }

 private:
  std::vector<TokenId> eos_;
  bool ignore_eos_ = false;
  std::vector<TokenId> stop_tokens_;
  int min_tokens_ = 0;
  std::vector<std::pair<TokenId, float>> logit_bias_;
  std::optional<grammar::ReasoningGate> constraint_;
  std::optional<int> top_logprobs_;
  std::optional<int> prompt_logprobs_;
  std::vector<std::uint32_t> mask_;  // scratch
};

}  // namespace replayssm
