// The JSON of an answer: what differs between chat and text completions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/choice_text.h"
#include "server/generation_fields.h"
#include "server/json.h"

namespace replayssm::server {

struct AnswerUsage {
  int prompt_tokens = 0;
  int cached_tokens = 0;
  int lost_tokens = 0;
  std::optional<PrefixLoss> lost_reason;
  int completion_tokens = 0;
  int reasoning_tokens = 0;
  std::int64_t drafts = 0;
  std::int64_t drafts_accepted = 0;
};

// {"prompt_tokens", .., "prompt_tokens_details": {"cached_tokens", ..}, ..}
Json usage_json(const AnswerUsage& usage);
// llama.cpp's "timings": tokens, milliseconds, tokens a second.
Json timings_json(const AnswerUsage& usage, const GenerationTimings& timings);

// One object an answer; it may remember what it has written. `choice` counts over all prompts of
// the request. Whole answers and the chunks of streams are OpenAI's unless overridden.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  virtual const std::string& id() const = 0;
  // id, object, created, model, ..: everything but choices and usage.
  virtual Json head(bool streamed) const = 0;
  // What the first chunk of a choice says before there is text; null: nothing.
  virtual Json opening(int choice) = 0;
  // The log-probabilities of a prompt, before any text of its choices.
  virtual void take_prompt(int first_choice, int choices, PromptEvaluated& evaluated) = 0;
  // One element of "choices" of a chunk. `finish_reason` empty: null.
  virtual Json delta(int choice, const ChoiceDelta& delta, const std::string& finish_reason) = 0;
  // One element of "choices" of a whole answer.
  virtual Json whole(int choice, const ChoiceDelta& all, const std::string& finish_reason) = 0;

  // A chunk with one choice, as opening() or delta() made it; `usage` is what is known of it now.
  virtual Json chunk(Json choice, const StreamOptions& stream, const AnswerUsage& usage) const;
  // How far prompts are evaluated; null: that is not told.
  virtual Json progress_chunk(const PromptProgress& progress) const;
  // The whole answer; `choices` as whole() made them.
  virtual Json answer(std::vector<Json> choices, const AnswerUsage& usage,
                      const GenerationTimings& timings) const;
};

// A token as text for a list of log-probabilities: "bytes:\xf0\x9f" where it is no whole
// characters, as the OpenAI API writes it.
std::string token_text(const Tokenizer& tokenizer, TokenId token);

// A logarithm that JSON can hold: that of 0 becomes -9999, as other servers have it.
double finite_logprob(double logprob);

// What "system_fingerprint" says: program and version.
inline constexpr const char* kSystemFingerprint = "replayssm-" REPLAYSSM_VERSION;

// PREFIX and 24 random hexadecimal digits.
std::string random_id(std::string_view prefix);
// Seconds since 1970.
std::int64_t unix_time();

}  // namespace replayssm::server
