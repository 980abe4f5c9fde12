// A request for text as the engine sees it: token ids in, events out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cache/prefix_loss.h"
#include "core/result.h"
#include "core/strong_id.h"
#include "engine/logprobs.h"
#include "engine/sampling_params.h"
#include "grammar/reasoning_gate.h"

namespace replayssm {

// Numbered in the order of submission, unique within a process.
using GenerationId = StrongId<struct GenerationTag>;

struct GenerationRequest {
  std::vector<TokenId> prompt;
  // Choice i samples with seed + i; nothing else differs between choices.
  SamplingParams sampling;
  int max_tokens = 1;  // of each choice
  bool ignore_eos = false;
  int min_tokens = 0;                        // no end token is chosen before so many output tokens
  int choices = 1;                           // n; they share one prefill
  std::vector<TokenId> stop_token_ids = {};  // end the output as an end-of-sequence token does
  std::vector<std::pair<TokenId, float>> logit_bias = {};
  // Every choice starts with a copy; empty: any token may come.
  std::shared_ptr<const grammar::ReasoningGate> constraint = nullptr;
  // Log-probabilities of output tokens with so many alternatives each; empty: none.
  std::optional<int> top_logprobs = {};
  // The same for the tokens of the prompt (echo). The whole prompt is evaluated, nothing is reused.
  bool prompt_logprobs = false;
  // Larger goes first under the priority policy.
  int priority = 0;
  // Lengths of prefixes of the prompt at which another request will probably part from this one
  // (the end of system message and tools, the beginning of the answer, ..), in any order; the cache
  // keeps what it needs to resume there. Lengths outside 1 .. prompt length - 1 are ignored.
  std::vector<int> branch_points = {};
};

enum class FinishReason { stop, length, cancelled, error };
std::string_view name_of(FinishReason reason);

// Seconds of wall time.
struct GenerationTimings {
  double waiting = 0;  // from submission to the first step
  double prefill = 0;  // from there to the first token
  double decode = 0;   // from the first token to the last
};

// The events of one generation come in this order: PromptProgress any number of times,
// PromptEvaluated once, then tokens and ends of choices (choices mixed, each in order),
// GenerationFinished once. If it ends early, ChoiceFinished of every open choice and
// GenerationFinished still come; PromptEvaluated does not if the prompt was not evaluated.
struct PromptProgress {
  int evaluated = 0;  // reused tokens included
  int prompt_tokens = 0;
};
struct PromptEvaluated {
  int cached_tokens = 0;                  // of the prompt, not evaluated by this request
  int lost_tokens = 0;                    // known to the cache beyond those, but evaluated again
  std::optional<PrefixLoss> lost_reason;  // if lost_tokens > 0
  // One for each token of the prompt if asked for; the first is empty.
  std::vector<std::optional<TokenLogprobs>> logprobs;
};
// A token that belongs to the output. End tokens do not.
struct OutputToken {
  int choice = 0;
  TokenId token = 0;
  std::optional<TokenLogprobs> logprobs;
};
struct ChoiceFinished {
  int choice = 0;
  FinishReason reason = FinishReason::stop;
  std::optional<TokenId> stop_token;  // the end token or stop token id, with FinishReason::stop
  int completion_tokens = 0;          // end token included
  std::optional<Error> error;         // with FinishReason::error
};
struct GenerationFinished {
  int prompt_tokens = 0;
  int cached_tokens = 0;
  int lost_tokens = 0;
  std::optional<PrefixLoss> lost_reason;
  int completion_tokens = 0;  // of all choices, end tokens included
  GenerationTimings timings;
  // Of all choices; those rejected were not output.
  std::int64_t drafts = 0;
  std::int64_t drafts_accepted = 0;
};
using GenerationEvent =
    std::variant<PromptProgress, PromptEvaluated, OutputToken, ChoiceFinished, GenerationFinished>;

// Called on the engine's thread, which waits for it: it hands the event on and returns. Destroyed
// after GenerationFinished.
using GenerationHandler = std::function<void(GenerationEvent)>;

// Why a request was not accepted. Nothing has changed then.
struct Refusal {
  enum class Kind {
    invalid,     // a value is wrong
    too_long,    // prompt and output do not fit the context or the KV pages
    queue_full,  // try again later
    draining,    // the process is about to end
    failed,      // the engine has failed and serves nobody
  };
  Kind kind = Kind::invalid;
  std::string field;  // of GenerationRequest, as server requests call it; may be empty
  std::string message;
};

}  // namespace replayssm
