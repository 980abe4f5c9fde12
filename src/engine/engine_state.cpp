#include "engine/engine_state.h"

#include <algorithm>

#include "engine/scheduled_choice.h"
#include "engine/scheduler.h"

namespace replayssm {
namespace {

const std::vector<double> kLatencies = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                        0.5,   1,      2.5,   5,    10,    30,   60,  120};
const std::vector<double> kTokens = {1,   2,    5,    10,   20,    50,    100,   200,
                                     500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

}  // namespace

void Histogram::observe(double value) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  ++counts_[static_cast<std::size_t>(at)];
  ++count_;
  sum_ += value;
}

EngineCounters::EngineCounters()
    : ring_occupancy({1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48}),
      iteration_tokens(kTokens),
      time_to_first_token(kLatencies),
      inter_token_latency(kLatencies),
      end_to_end_latency(kLatencies),
      queue_time(kLatencies),
      prefill_time(kLatencies),
      decode_time(kLatencies),
      request_prompt_tokens(kTokens),
      request_generation_tokens(kTokens) {}

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

std::string_view name_of(SequenceState::Phase phase) {
  switch (phase) {
    case SequenceState::Phase::waiting:
      return "waiting";
    case SequenceState::Phase::prefill:
      return "prefill";
    case SequenceState::Phase::decode:
      return "decode";
    case SequenceState::Phase::paused:
      return "paused";
  }
  return "unknown";
}

EngineState Scheduler::state() const {
  EngineState state;
  const auto view = [&](const Choice& choice) {
    SequenceState sequence;
    sequence.generation = choice.generation->id;
    sequence.choice = choice.index;
    sequence.prompt_tokens = choice.generation->prompt_tokens;
    sequence.cached_tokens = choice.generation->prompt.cached_tokens;
    sequence.output_tokens = choice.outputs;
    sequence.last_fold = choice.last_fold;
    if (choice.sequence.memory) {
      const Residence& memory = choice.sequence.memory;
      sequence.committed = memory.cursor().committed.tokens;
      sequence.checkpoint = memory.cursor().checkpoint.tokens;
      sequence.base = memory.base();
      sequence.base_shared = engine_.memory().slots().shared(memory.base());
      state.slots_reserved += memory.home() != memory.base() ? 1 : 0;
    }
    return sequence;
  };
  for (const ChoicePtr& choice : running_) {
    SequenceState sequence = view(*choice);
    sequence.phase = choice->sequence.phase() == Phase::prefill ? SequenceState::Phase::prefill
                                                                : SequenceState::Phase::decode;
    state.sequences.push_back(sequence);
  }
  for (const ChoicePtr& choice : waiting_) {
    SequenceState sequence = view(*choice);
    const bool paused = choice->evaluated_before_pause > 0;
    sequence.phase = paused ? SequenceState::Phase::paused : SequenceState::Phase::waiting;
    state.paused += paused ? 1 : 0;
    state.sequences.push_back(sequence);
  }
  state.running = running();
  state.waiting = waiting() - state.paused;
  const SequenceMemory& memory = engine_.memory();
  state.rows = {memory.rows().used(), memory.rows().rows()};
  state.slots = {memory.slots().used(), memory.slots().slots()};
  state.pages = {memory.pages().used(), memory.pages().pages()};
  state.counters = counters_;
  if (options_.cache != nullptr) {
    for (const PrefixCache::EntryView& entry : options_.cache->entries()) {
      state.cache_entries.push_back({entry.cursor.committed.tokens, entry.cursor.checkpoint.tokens,
                                     entry.with_records, entry.on_host});
    }
    state.host_cache_bytes = options_.cache->host_bytes();
    state.counters.entries_evicted = options_.cache->evictions();
    state.counters.entries_demoted = options_.cache->demotions();
    state.counters.host_restores = options_.cache->host_restores();
  }
  return state;
}

}  // namespace replayssm
