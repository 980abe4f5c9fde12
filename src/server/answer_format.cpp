#include "server/answer_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "text/utf8.h"

namespace replayssm::server {

Json usage_json(const AnswerUsage& usage) {
  Json prompt = {{"cached_tokens", usage.cached_tokens},
                 {"cached_tokens_lost", usage.lost_tokens},
                 {"cached_tokens_lost_reason", Json()}};
  if (usage.lost_reason) prompt["cached_tokens_lost_reason"] = name_of(*usage.lost_reason);
  Json completion = {{"reasoning_tokens", usage.reasoning_tokens}};
  if (usage.drafts > 0) {
    completion["accepted_prediction_tokens"] = usage.drafts_accepted;
    completion["rejected_prediction_tokens"] = usage.drafts - usage.drafts_accepted;
  }
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", std::move(prompt)},
          {"completion_tokens_details", std::move(completion)}};
}

Json timings_json(const AnswerUsage& usage, const GenerationTimings& timings) {
  const int evaluated = usage.prompt_tokens - usage.cached_tokens;
  const auto rate = [](int tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0.0; };
  const auto each = [](int tokens, double seconds) {
    return tokens > 0 ? 1000.0 * seconds / tokens : 0.0;
  };
  Json json = {{"cache_n", usage.cached_tokens},
               {"prompt_n", evaluated},
               {"prompt_ms", 1000.0 * timings.prefill},
               {"prompt_per_token_ms", each(evaluated, timings.prefill)},
               {"prompt_per_second", rate(evaluated, timings.prefill)},
               {"predicted_n", usage.completion_tokens},
               {"predicted_ms", 1000.0 * timings.decode},
               {"predicted_per_token_ms", each(usage.completion_tokens, timings.decode)},
               {"predicted_per_second", rate(usage.completion_tokens, timings.decode)},
               {"queue_ms", 1000.0 * timings.waiting}};
  if (usage.drafts > 0) {
    json["draft_n"] = usage.drafts;
    json["draft_n_accepted"] = usage.drafts_accepted;
  }
  return json;
}

Json AnswerFormat::chunk(Json choice, const StreamOptions& stream, const AnswerUsage& usage) const {
  Json chunk = head(true);
  chunk["choices"] = Json::array({std::move(choice)});
  if (stream.continuous_usage) {
    chunk["usage"] = usage_json(usage);
  } else if (stream.include_usage) {
    chunk["usage"] = Json();
  }
  return chunk;
}

Json AnswerFormat::progress_chunk(const PromptProgress& progress) const {
  Json chunk = head(true);
  chunk["choices"] = Json::array();
  chunk["prompt_progress"] = {{"total", progress.prompt_tokens}, {"processed", progress.evaluated}};
  return chunk;
}

Json AnswerFormat::answer(std::vector<Json> choices, const AnswerUsage& usage,
                          const GenerationTimings& timings) const {
  Json body = head(false);
  body["choices"] = std::move(choices);
  body["usage"] = usage_json(usage);
  body["timings"] = timings_json(usage, timings);
  return body;
}

std::string token_text(const Tokenizer& tokenizer, TokenId token) {
  const std::string_view bytes = tokenizer.token_bytes(token);
  if (is_utf8(bytes)) return std::string(bytes);
  std::string text = "bytes:";
  for (const char byte : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return text;
}

double finite_logprob(double logprob) { return std::max(logprob, -9999.0); }

std::string random_id(std::string_view prefix) {
  thread_local std::mt19937_64 random{(std::uint64_t{std::random_device{}()} << 32) |
                                      std::random_device{}()};
  return fmt::format("{}{:016x}{:08x}", prefix, random(), random() >> 32);
}

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace replayssm::server
