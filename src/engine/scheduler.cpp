#include "engine/scheduler.h"

#include <algorithm>
#include <span>
#include <utility>

namespace replayssm {
namespace {

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

SequenceCounters difference(const SequenceCounters& now, const SequenceCounters& before) {
  return {now.steps - before.steps, now.tokens_evaluated - before.tokens_evaluated,
          now.folds - before.folds, now.state_bytes_read - before.state_bytes_read,
          now.state_bytes_written - before.state_bytes_written};
}

}  // namespace

std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::error:
      return "error";
  }
  return "unknown";
}

Result<RequestId> Scheduler::submit(Request request) {
  REPLAYSSM_TRY(engine_.check_prompt(request.prompt));
  auto entry = std::make_unique<Entry>();
  const int prompt_tokens = static_cast<int>(request.prompt.size());
  entry->prompt = std::move(request.prompt);
  entry->sampling = request.sampling;
  entry->max_tokens = request.max_tokens;
  entry->ignore_eos = request.ignore_eos;
  return enqueue(std::move(entry), prompt_tokens);
}

Result<RequestId> Scheduler::submit(Sequence sequence, int max_tokens, bool ignore_eos) {
  auto entry = std::make_unique<Entry>();
  entry->sequence = std::move(sequence);
  entry->reused_tokens = entry->sequence.evaluated();
  entry->before = entry->sequence.counters;
  entry->max_tokens = max_tokens;
  entry->ignore_eos = ignore_eos;
  const int tokens = static_cast<int>(entry->sequence.tokens.size());
  return enqueue(std::move(entry), tokens);
}

Result<RequestId> Scheduler::enqueue(EntryPtr entry, int prompt_tokens) {
  if (entry->max_tokens < 1) return refuse("max_tokens", entry->max_tokens, "at least 1");
  const std::int64_t longest = std::int64_t{prompt_tokens} + entry->max_tokens;
  if (longest > engine_.context_length()) {
    return refuse("max_tokens", entry->max_tokens,
                  fmt::format("at most {}: the prompt has {} tokens and the context {}",
                              engine_.context_length() - prompt_tokens, prompt_tokens,
                              engine_.context_length()));
  }
  entry->pages = engine_.memory().layout().pages_for(longest);
  if (entry->pages > engine_.plan().pages) {
    return refuse(
        "max_tokens", entry->max_tokens,
        fmt::format("what {} KV pages of {} tokens hold: {} tokens with the prompt's {}",
                    engine_.plan().pages, engine_.memory().layout().page_tokens,
                    engine_.plan().pages * engine_.memory().layout().page_tokens, prompt_tokens));
  }
  entry->id = RequestId{next_id_++};
  entry->submitted = Clock::now();
  const RequestId id = entry->id;
  waiting_.push_back(std::move(entry));
  return id;
}

void Scheduler::cancel(RequestId request) {
  for (const EntryPtr& entry : running_) {
    if (entry->id == request) entry->cancelled = true;
  }
  for (const EntryPtr& entry : waiting_) {
    if (entry->id == request) entry->cancelled = true;
  }
}

int Scheduler::promised_pages() const {
  int pages = 0;
  for (const EntryPtr& entry : running_) pages += entry->pages;
  return pages;
}

// In the order of submission: a large request at the head of the queue is not overtaken.
std::optional<Error> Scheduler::admit() {
  while (!waiting_.empty()) {
    Entry& entry = *waiting_.front();
    if (promised_pages() + entry.pages > engine_.plan().pages) {
      return Error{fmt::format("KV pages: {} are needed, {} of {} are promised", entry.pages,
                               promised_pages(), engine_.plan().pages)};
    }
    if (!entry.sequence.memory) {
      auto sequence = engine_.admit(entry.prompt, entry.sampling);
      // Rows or slots; they come free when a running request ends.
      if (!sequence) return sequence.error();
      entry.sequence = std::move(*sequence);
    }
    entry.started = Clock::now();
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return std::nullopt;
}

std::vector<StepRow> Scheduler::compose(StepEvents& events) {
  std::vector<StepRow> rows;
  std::optional<Error> no_room;
  Entry* stuck = nullptr;
  int budget = engine_.runner().limits().tokens;
  for (const Phase phase : {Phase::decode, Phase::prefill}) {
    for (const EntryPtr& entry : running_) {
      if (entry->sequence.phase() != phase || budget == 0) continue;
      const StepRow row = Engine::next_row(entry->sequence, budget);
      const Status ready = engine_.prepare(row);
      if (!ready) {
        // The others go on, and what they fold or finish makes room.
        if (stuck == nullptr) stuck = entry.get();
        no_room = ready.error();
        continue;
      }
      budget -= row.tokens;
      rows.push_back(row);
    }
  }
  if (rows.empty() && stuck != nullptr) finish(*stuck, FinishReason::error, no_room, events);
  return rows;
}

Result<StepEvents> Scheduler::step() {
  StepEvents events;
  // Wherever it stands in the queue: it needs no room to end.
  std::erase_if(waiting_, [&](const EntryPtr& entry) {
    if (!entry->cancelled) return false;
    entry->started = Clock::now();
    finish(*entry, FinishReason::cancelled, std::nullopt, events);
    return true;
  });
  auto no_room = admit();
  if (no_room && running_.empty()) {
    // What has just ended gives its memory back when the caller drops it.
    if (!events.finished.empty()) return events;
    // Nobody is left who could make room.
    waiting_.front()->started = Clock::now();
    finish(*waiting_.front(), FinishReason::error, std::move(no_room), events);
    waiting_.pop_front();
    return events;
  }
  for (const EntryPtr& entry : running_) {
    if (entry->cancelled) finish(*entry, FinishReason::cancelled, std::nullopt, events);
  }
  drop_finished();
  const std::vector<StepRow> rows = compose(events);
  drop_finished();
  if (rows.empty()) return events;

  auto results = engine_.step(rows);
  if (!results) {
    running_.clear();
    return results.error();
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const StepResult& result = (*results)[i];
    const auto owner = std::find_if(running_.begin(), running_.end(), [&](const EntryPtr& e) {
      return &e->sequence == result.sequence;
    });
    Entry& entry = **owner;
    if (rows[i].phase == Phase::prefill) {
      events.progress.push_back(
          {entry.id, entry.sequence.evaluated(), entry.sequence.prompt_tokens});
    }
    if (result.error) {
      finish(entry, FinishReason::error, result.error, events);
    } else if (result.token) {
      take_token(entry, *result.token, events);
    }
  }
  drop_finished();
  return events;
}

void Scheduler::take_token(Entry& entry, TokenId token, StepEvents& events) {
  if (entry.outputs == 0) entry.first_token = Clock::now();
  ++entry.outputs;
  if (!entry.ignore_eos && engine_.config().is_eos(token)) {
    finish(entry, FinishReason::stop, std::nullopt, events);
    return;
  }
  events.tokens.push_back({entry.id, token});
  if (entry.outputs == entry.max_tokens) {
    finish(entry, FinishReason::length, std::nullopt, events);
  }
}

void Scheduler::finish(Entry& entry, FinishReason reason, std::optional<Error> error,
                       StepEvents& events) {
  const auto now = Clock::now();
  Finished finished;
  finished.request = entry.id;
  finished.reason = reason;
  finished.error = std::move(error);
  finished.prompt_tokens =
      entry.sequence.memory ? entry.sequence.prompt_tokens : static_cast<int>(entry.prompt.size());
  finished.reused_tokens = entry.reused_tokens;
  const auto& tokens = entry.sequence.tokens;
  finished.output.assign(tokens.end() - entry.outputs, tokens.end());
  if (reason == FinishReason::stop) finished.output.pop_back();
  finished.timings.waiting = seconds(entry.started - entry.submitted);
  finished.timings.prefill = seconds((entry.outputs > 0 ? entry.first_token : now) - entry.started);
  finished.timings.decode = entry.outputs > 0 ? seconds(now - entry.first_token) : 0;
  finished.counters = difference(entry.sequence.counters, entry.before);
  if (reason != FinishReason::error) finished.sequence = std::move(entry.sequence);
  entry.sequence = Sequence{};
  entry.id = RequestId{};  // marks it as finished
  events.finished.push_back(std::move(finished));
}

void Scheduler::drop_finished() {
  std::erase_if(running_, [](const EntryPtr& entry) { return entry->id == RequestId{}; });
}

}  // namespace replayssm
