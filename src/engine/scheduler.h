// Which sequences take part in which step. Requests wait until the memory plan has room for them,
// then run; prompt chunks fill up steps in which others decode. A running sequence whose place or
// memory another one needs more is paused: it goes into the prefix cache like any sequence, and
// resumes from there, from its end or from the deepest part of it that is left.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "cache/prefix_cache.h"
#include "core/result.h"
#include "engine/engine.h"
#include "engine/engine_state.h"
#include "engine/generation.h"

namespace replayssm {

enum class SchedulePolicy {
  first_come,  // "fcfs"
  priority,    // larger GenerationRequest::priority first; may pause others
};

// Whether the next step of a batch that decodes is launched before this one's tokens are read.
// Never with EngineOptions::overlap off, a drafter, or replay off.
enum class Overlap {
  off,
  beside_host,  // where steps run beside the host
  always,  // also where the host computes them, which gains nothing: to prove that all is equal
};

struct SchedulerOptions {
  SchedulePolicy policy = SchedulePolicy::first_come;
  // Where sequences go when they end or are paused; null: they are handed back, or dropped and
  // evaluated again. Outlives the scheduler.
  PrefixCache* cache = nullptr;
  // The most tokens between checkpoints that the cache is given along a sequence; a multiple of the
  // fold block.
  int track_interval = 256;
  // Output tokens for which a running sequence is promised pages ahead of what it has. Longer
  // outputs are not set aside in full, since most end early: pausing handles the rest.
  int promised_tokens = 256;
  Overlap overlap = Overlap::beside_host;
};

// How one choice of a request ended.
struct Finished {
  GenerationId request;
  int choice = 0;
  FinishReason reason = FinishReason::stop;
  std::optional<Error> error;  // with FinishReason::error
  // Without the token that ended it, if that was an end token.
  std::vector<TokenId> output;
  std::optional<TokenId> stop_token;  // the token that ended it
  int prompt_tokens = 0;
  int reused_tokens = 0;  // of the prompt, evaluated before this request
  GenerationTimings timings;
  SequenceCounters counters;  // of this choice alone
  // With the request's last choice.
  std::optional<GenerationFinished> generation;
  // Without a cache: still holding its memory, so that it can be extended; whoever does not want to
  // go on drops it, so that others find room. Empty if it never ran or has failed.
  Sequence sequence;
};

// What happened in a step, to be read in the order of the members.
struct StepEvents {
  struct Progress {
    GenerationId request;
    int evaluated = 0;  // of the prompt
    int prompt = 0;
  };
  struct Prompt {
    GenerationId request;
    PromptEvaluated event;
  };
  struct Token {
    GenerationId request;
    int choice = 0;
    TokenId token = 0;
    std::optional<TokenLogprobs> logprobs;
  };
  std::vector<Progress> progress;
  std::vector<Prompt> prompts;
  std::vector<Token> tokens;  // those that belong to the output, in order
  std::vector<Finished> finished;
};

// One thread, but for check(). The engine outlives it.
class Scheduler {
 public:
  explicit Scheduler(Engine& engine, const SchedulerOptions& options = {});
  ~Scheduler();

  // What is wrong with a request that could never run, if anything: an empty or foreign prompt,
  // prompt and max_tokens beyond the context or beyond all pages, more choices than can run. Any
  // thread.
  std::optional<Refusal> check(const GenerationRequest& request) const;

  // Refused as check() says, with nothing changed. `id`: larger than all before; the next number if
  // it is not given.
  Result<GenerationId> submit(GenerationRequest request, std::optional<GenerationId> id = {});

  // Goes on with a sequence that Engine::extend has given a next prompt.
  Result<GenerationId> submit(Sequence sequence, int max_tokens, bool ignore_eos = false);

  // Ends the request before the next step; it is reported as finished then. Unknown ids: nothing.
  void cancel(GenerationId request);

  // Ends one choice before the next step, with FinishReason::stop and its first `output_tokens`
  // tokens. Unknown ids: nothing.
  void stop_choice(GenerationId request, int choice, int output_tokens);

  // Whether the choice has not ended.
  bool has(GenerationId request, int choice) const;

  // A launched step that still has a row keeps a choice running.
  bool idle() const { return waiting_.empty() && running_.empty(); }
  int running() const { return static_cast<int>(running_.size()); }
  int waiting() const { return static_cast<int>(waiting_.size()); }

  // Admits what fits, runs one step, reports. Where steps run beside the host, the next one of a
  // batch that only decodes is launched before this one's tokens are read; who is admitted,
  // cancelled or stopped then waits for it. A request that finds no room although nothing runs
  // (finished sequences that are still held, for example) ends with an error. After an error or an
  // exception of the call no running sequence may go on: abandon() follows.
  Result<StepEvents> step();

  // Ends everything that runs with this error and gives its memory back. What waits stays. The
  // events include those of the step that failed. When it throws, it can be called again; has()
  // then says whose end could not be reported.
  StepEvents abandon(const Error& error);

  EngineState state() const;
  const EngineCounters& counters() const { return counters_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Generation;
  struct Choice;
  using ChoicePtr = std::unique_ptr<Choice>;

  GenerationId enqueue(ChoicePtr choice, std::optional<GenerationId> id = {});
  std::optional<Refusal> check_length(int prompt_tokens, int max_tokens, int choices) const;
  void wait(ChoicePtr choice);
  bool before(const Choice& a, const Choice& b) const;

  // The reason why the first waiting request could not be admitted, if so.
  std::optional<Error> admit();
  std::optional<Error> lacks(const Choice& choice, int least_priority) const;
  bool may_make_way(const Choice& choice) const;
  bool make_way(const Choice& choice);
  Status place(Choice& choice);
  void account_for_reuse(Choice& choice, const PrefixCache::Match& match);
  void pause(ChoicePtr paused);
  // Set aside for running choices, whether they have it yet or not.
  struct Promised {
    int running = 0;  // choices
    int rows = 0;
    int pages = 0;
  };
  Promised promised(int least_priority) const;
  Promised promised_to(const Choice& choice) const;
  int pages_shared_by_forks(const Generation& generation) const;

  std::vector<Choice*> by_rank() const;
  Result<std::vector<StepRow>> compose(StepEvents& events);
  bool may_launch_ahead() const;
  std::vector<StepRow> compose_ahead();
  Status propose_drafts(bool leaves_out);
  int most_drafts(const Choice& choice) const;
  StepRow next_row(Choice& choice, int tokens, int logits) const;
  Status prepare(const StepRow& row);

  void take(Choice& choice, StepResult& result, StepEvents& events);
  void prompt_evaluated(Choice& choice, StepEvents& events);
  void take_token(Choice& choice, SampledToken sampled, StepEvents& events);
  void publish(Choice& choice);
  void keep_at_end(Choice& choice);
  static bool forks_now(const Choice& choice);
  Status fork_choices(Choice& leader);
  void count(Choice& choice, const StepResult& result);

  void end_early(StepEvents& events);
  void finish(Choice& choice, FinishReason reason, std::optional<Error> error, StepEvents& events);
  void drop_finished();

  Engine& engine_;
  SchedulerOptions options_;
  std::int32_t next_id_ = 0;
  std::deque<ChoicePtr> waiting_;  // in the order of admission
  std::vector<ChoicePtr> running_;
  StepEvents events_;  // of the step in progress
  EngineCounters counters_;
};

}  // namespace replayssm
