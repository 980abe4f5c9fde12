#include "server/completion_request.h"

#include <fmt/format.h>

#include <algorithm>

namespace replayssm::server {
namespace {

std::string prompt_forms() {
  return fmt::format(
      "a text, a list of texts, a list of token ids (0 or more), or a list of such lists; at most "
      "{} prompts",
      kMostPrompts);
}

// A text or a list of token ids.
bool read_prompt(const Json& value, std::vector<CompletionRequest::Prompt>& target) {
  if (value.is_string()) {
    target.emplace_back(value.get<std::string>());
    return true;
  }
  if (!value.is_array()) return false;
  std::vector<TokenId> ids;
  ids.reserve(value.size());
  for (const Json& id : value) {
    if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<TokenId>::max()) return false;
    ids.push_back(id.get<TokenId>());
  }
  target.emplace_back(std::move(ids));
  return true;
}

}  // namespace

void read_prompts(RequestFields& fields, std::string_view name,
                  std::vector<CompletionRequest::Prompt>& target) {
  const Json& value = fields.take(name);
  if (!fields.ok() || value.is_null()) return;
  const bool list = value.is_array() && !value.empty() && !value[0].is_number();
  bool accepted = !value.is_array() || !value.empty();
  if (list) {
    accepted = value.size() <= kMostPrompts;
    for (std::size_t i = 0; accepted && i < value.size(); ++i) {
      accepted = read_prompt(value[i], target);
    }
  } else {
    accepted = accepted && read_prompt(value, target);
  }
  if (!accepted) fields.fail(name, refuse(name, shown(value), prompt_forms()).message);
}

std::optional<ApiError> parse_completion_request(const Json& body, CompletionRequest& target) {
  RequestFields fields(body);
  read_generation_fields(fields, target.generation);
  read_prompts(fields, "prompt", target.prompts);
  if (target.prompts.empty()) {
    fields.fail("prompt", refuse("prompt", "null", prompt_forms()).message);
  }
  fields.read("echo", target.echo);
  fields.read("parse_special", target.parse_special);
  fields.read("logprobs", target.top_logprobs, 0, kMostTopLogprobs);
  std::optional<int> best_of;
  fields.read("best_of", best_of, 1, kMostChoices);
  if (best_of && *best_of != 1 && *best_of != target.generation.n) {
    fields.fail("best_of", refuse("best_of", *best_of, "1, or the same as n").message);
  }
  fields.accept_neutral({{"suffix", ""},
                         {"add_special_tokens", true},
                         {"response_format", nullptr},
                         {"guided_json", nullptr},
                         {"structured_outputs", nullptr}});
  fields.refuse_others();
  if (!target.generation.max_tokens) target.generation.max_tokens = kUsualCompletionTokens;
  check_min_tokens(fields, target.generation);
  if (!fields.ok()) return fields.error();
  if (*target.generation.max_tokens == 0 && !target.echo) {
    return invalid_field("max_tokens", refuse("max_tokens", 0, "1 or more without echo").message);
  }
  return std::nullopt;
}

}  // namespace replayssm::server
