// Which sequences take part in which step. First come, first served: requests wait until the memory
// plan has room for all that they may need, then run to their end; prompt chunks fill up steps in
// which the others decode.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/strong_id.h"
#include "engine/engine.h"
#include "engine/generation.h"

namespace replayssm {

using RequestId = StrongId<struct RequestTag>;

struct Request {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  int max_tokens = 1;
  bool ignore_eos = false;
};

// Seconds are wall time.
struct RequestTimings {
  double waiting = 0;  // from submission to the first step
  double prefill = 0;  // from there to the first token
  double decode = 0;   // from the first token to the last
};

struct Finished {
  RequestId request;
  FinishReason reason = FinishReason::stop;
  std::optional<Error> error;  // with FinishReason::error
  // Output without the token that ended it, if that was an end-of-sequence token.
  std::vector<TokenId> output;
  int prompt_tokens = 0;
  int reused_tokens = 0;  // of the prompt, evaluated before this request
  RequestTimings timings;
  SequenceCounters counters;  // of this request alone
  // Still holding its memory, so that it can be extended; whoever does not want to go on drops it,
  // so that others find room. Empty if it never ran or has failed.
  Sequence sequence;
};

// What happened in a step. `tokens` are those that belong to the output, in order.
struct StepEvents {
  struct Token {
    RequestId request;
    TokenId token = 0;
  };
  struct Progress {
    RequestId request;
    int evaluated = 0;  // of the prompt
    int prompt = 0;
  };
  std::vector<Token> tokens;
  std::vector<Progress> progress;
  std::vector<Finished> finished;
};

// One thread. The engine outlives it.
class Scheduler {
 public:
  explicit Scheduler(Engine& engine) : engine_(engine) {}

  // Refused, with nothing changed, when the request could never run: an empty or foreign prompt,
  // prompt and max_tokens beyond the context or beyond all pages.
  Result<RequestId> submit(Request request);

  // Goes on with a sequence that Engine::extend has given a next prompt.
  Result<RequestId> submit(Sequence sequence, int max_tokens, bool ignore_eos = false);

  // Ends the request before the next step; it is reported as finished then. Unknown ids: nothing.
  void cancel(RequestId request);

  bool idle() const { return waiting_.empty() && running_.empty(); }
  int running() const { return static_cast<int>(running_.size()); }

  // Admits what fits, runs one step, reports. A request that finds no room although nothing runs
  // (finished sequences that are still held, for example) ends with an error. An error of the call
  // means that the engine failed and every running sequence is lost.
  Result<StepEvents> step();

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    RequestId id;
    std::vector<TokenId> prompt;
    SamplingParams sampling;
    int max_tokens = 1;
    bool ignore_eos = false;
    bool cancelled = false;
    int pages = 0;  // promised
    Sequence sequence;
    int reused_tokens = 0;
    int outputs = 0;
    SequenceCounters before;
    Clock::time_point submitted, started, first_token;
  };
  using EntryPtr = std::unique_ptr<Entry>;

  Result<RequestId> enqueue(EntryPtr entry, int prompt_tokens);
  // The reason why the first waiting request could not be admitted, if so.
  std::optional<Error> admit();
  std::vector<StepRow> compose(StepEvents& events);
  void take_token(Entry& entry, TokenId token, StepEvents& events);
  void finish(Entry& entry, FinishReason reason, std::optional<Error> error, StepEvents& events);
  void drop_finished();
  int promised_pages() const;

  Engine& engine_;
  std::int32_t next_id_ = 0;
  std::deque<EntryPtr> waiting_;
  std::vector<EntryPtr> running_;
};

}  // namespace replayssm
