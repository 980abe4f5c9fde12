// The fields that chat and text completions have in common.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/sampling_params.h"
#include "server/request_fields.h"

namespace replayssm::server {

struct StreamOptions {
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool return_progress = false;
};

struct GenerationFields {
  std::string model;  // empty: not named
  SamplingRequest sampling;
  std::optional<int> max_tokens;
  int min_tokens = 0;
  bool ignore_eos = false;
  int n = 1;
  int priority = 0;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool include_stop_text = false;
  bool skip_special_tokens = true;
  std::vector<std::pair<TokenId, float>> logit_bias;
  StreamOptions stream;
};

// Answers to one prompt, at most.
inline constexpr int kMostChoices = 128;
inline constexpr int kMostStopTexts = 4;
// Bytes of a stop text, at most.
inline constexpr std::size_t kMostStopBytes = 4096;
// Alternatives of one token, at most.
inline constexpr int kMostTopLogprobs = 20;

// The sampling values: temperature, top_p, top_k, min_p, the penalties, seed.
void read_sampling(RequestFields& fields, SamplingRequest& sampling);
// {"1234": -100, ..}: token ids as member names.
void read_logit_bias(RequestFields& fields, std::vector<std::pair<TokenId, float>>& target);

// Everything above, the fields that are ignored (server-contract 2.2) and those that are accepted
// with their neutral value only.
void read_generation_fields(RequestFields& fields, GenerationFields& target, int fewest_tokens = 0);
// Once max_tokens is known: it may have other names and a default.
void check_min_tokens(RequestFields& fields, const GenerationFields& target);

}  // namespace replayssm::server
