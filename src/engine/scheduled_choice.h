// A request and its choices as the scheduler sees them. For the scheduler's own sources.
#pragma once

#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "engine/output_rules.h"
#include "engine/scheduler.h"

namespace replayssm {

inline constexpr int kAnyPriority = std::numeric_limits<int>::min();

// What the choices of a request share.
struct Scheduler::Generation {
  GenerationId id;
  GenerationRequest request;  // its prompt is moved into the first choice's sequence
  int prompt_tokens = 0;
  // Depths of the prompt at which the cache is given a sequence that serves exactly there.
  std::set<int> branch_points;

  int unfinished = 1;  // choices
  bool forked = true;  // all choices exist
  bool cancelled = false;
  bool prompt_done = false;
  PromptEvaluated prompt;
  int completion_tokens = 0;
  std::int64_t drafts = 0;
  std::int64_t drafts_accepted = 0;
  Clock::time_point submitted;
  std::optional<Clock::time_point> started;
};

// One choice: a sequence on its way to an end. `generation` is null once it is finished.
struct Scheduler::Choice {
  std::shared_ptr<Generation> generation;
  int index = 0;
  OutputRules rules;
  // Without memory while it waits or is paused. Its prompt_tokens are those to be evaluated as a
  // prompt: more than the request's where it is evaluated again after a pause.
  Sequence sequence;
  SequenceCounters before;     // of the sequence, when it was submitted
  std::vector<Draft> drafts;   // for the next step
  int most_accepted = 0;       // of them: the rest fills up the window
  bool shares_prompt = false;  // its full pages, with other choices, since they were forked
  int outputs = 0;
  int evaluated_before_pause = 0;  // t when it was paused; 0: never was
  std::optional<int> stop_after;   // output tokens; from stop_choice()
  int last_kept = 0;               // deepest checkpoint that the cache was given along the way
  int last_fold = 0;               // t when c last moved
  Clock::time_point first_token, last_token;

  int final_tokens() const {  // the most that it can come to
    return generation->prompt_tokens + generation->request.max_tokens;
  }
};

}  // namespace replayssm
