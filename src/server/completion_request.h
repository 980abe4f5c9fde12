// A body of POST /v1/completions.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/generation_fields.h"

namespace replayssm::server {

// Prompts of one request, at most.
inline constexpr std::size_t kMostPrompts = 1024;
// Tokens of a completion where none are asked for, as in the OpenAI API.
inline constexpr int kUsualCompletionTokens = 16;

struct CompletionRequest {
  using Prompt = std::variant<std::string, std::vector<TokenId>>;

  GenerationFields generation;
  std::vector<Prompt> prompts;  // at least one
  bool echo = false;
  bool parse_special = false;       // added tokens are recognised in texts
  std::optional<int> top_logprobs;  // empty: no log-probabilities
};

// The prompts of the field `name`: a text, a list of texts, a list of token ids, or a list of such
// lists. Nothing where the field is missing.
void read_prompts(RequestFields& fields, std::string_view name,
                  std::vector<CompletionRequest::Prompt>& target);

// Fills `target`; an error if the request is refused, naming the field.
std::optional<ApiError> parse_completion_request(const Json& body, CompletionRequest& target);

}  // namespace replayssm::server
