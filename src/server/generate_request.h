// A body of POST /generate, SGLang's own interface.
#pragma once

#include <optional>
#include <vector>

#include "server/completion_request.h"

namespace replayssm::server {

// Tokens of a choice where `max_new_tokens` is not given, as in SGLang.
inline constexpr int kUsualNewTokens = 128;

struct GenerateRequest {
  GenerationFields generation;
  std::vector<CompletionRequest::Prompt> prompts;  // at least one
  bool batch = false;                              // the answer is a list
  std::optional<int> top_logprobs;                 // of the output; empty: no log-probabilities
  bool text_in_logprobs = false;
};

// Fills `target`; an error if the request is refused, naming the field.
std::optional<ApiError> parse_generate_request(const Json& body, GenerateRequest& target);

}  // namespace replayssm::server
