// What can be seen of a running engine: for metrics, for the page that shows it, for tests.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/generation.h"
#include "replay/geometry.h"

namespace replayssm {

// Counts of observations by upper bound, as Prometheus wants them.
class Histogram {
 public:
  Histogram() = default;
  explicit Histogram(std::vector<double> upper_bounds)
      : bounds_(std::move(upper_bounds)), counts_(bounds_.size() + 1, 0) {}

  void observe(double value);

  const std::vector<double>& upper_bounds() const { return bounds_; }  // ascending
  // One for each bound (observations at or below it and above the one before), then the rest.
  const std::vector<std::int64_t>& counts() const { return counts_; }
  std::int64_t count() const { return count_; }
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<std::int64_t> counts_;
  std::int64_t count_ = 0;
  double sum_ = 0;
};

// States copied from one slot to another: nothing in the engine can. Sequences and cache entries
// share slots by reference (SequenceMemory::fork_at(), checkpoint_of()), and what a fold reads from
// a shared slot it writes to another one, a block further. A test compares the bytes of all slots
// (EngineCache.NoTwoSlotsHoldTheSameState).
inline constexpr std::int64_t kStateCopies = 0;

// Since the start. Only ever grow.
struct EngineCounters {
  EngineCounters();

  std::int64_t steps = 0;
  std::int64_t prompt_tokens = 0;                   // of accepted requests, reused ones included
  std::int64_t generation_tokens = 0;               // chosen, end tokens included
  std::array<std::int64_t, 4> requests_finished{};  // by FinishReason of the last choice
  std::int64_t requests_refused = 0;
  std::int64_t preemptions = 0;
  std::int64_t recomputed_tokens = 0;  // evaluated again after a preemption
  std::int64_t nonfinite_logits = 0;

  std::int64_t prefix_queries = 0;                                      // prompt tokens looked up
  std::int64_t prefix_hits = 0;                                         // of these, reused
  std::array<std::int64_t, kPrefixLosses.size()> prefix_tokens_lost{};  // by PrefixLoss
  std::int64_t entries_evicted = 0;
  std::int64_t entries_demoted = 0;       // to checkpoints only
  std::int64_t publications_skipped = 0;  // no slot, row or page was free for them
  std::int64_t host_restores = 0;

  std::int64_t folds_due = 0;            // blocks folded by decode and verification windows
  std::int64_t folds_prefill = 0;        // by prompt chunks
  std::int64_t checkpoints_running = 0;  // cache entries made while a sequence ran
  std::int64_t checkpoints_final = 0;    // and at its end
  std::int64_t state_bytes_read = 0;
  std::int64_t state_bytes_written = 0;

  std::int64_t verify_windows = 0;  // rows with drafts
  // By place after the anchor: drafts verified, and those that became output.
  std::array<std::int64_t, FoldGeometry::kLargestWindow - 1> drafts{};
  std::array<std::int64_t, FoldGeometry::kLargestWindow - 1> drafts_accepted{};

  Histogram ring_occupancy;  // records pending, at every decode step of every row
  Histogram iteration_tokens;
  Histogram time_to_first_token;  // seconds, as all below
  Histogram inter_token_latency;
  Histogram end_to_end_latency;
  Histogram queue_time;
  Histogram prefill_time;
  Histogram decode_time;
  Histogram request_prompt_tokens;
  Histogram request_generation_tokens;
};

struct PoolState {
  int used = 0;
  int total = 0;
};

// One sequence that runs, waits, or is paused.
struct SequenceState {
  enum class Phase { waiting, prefill, decode, paused };

  GenerationId generation;
  int choice = 0;
  Phase phase = Phase::waiting;
  int prompt_tokens = 0;
  int cached_tokens = 0;
  int output_tokens = 0;
  int committed = 0;                                      // t
  int checkpoint = 0;                                     // c
  int pending() const { return committed - checkpoint; }  // records in the ring
  int last_fold = 0;                                      // t when c last moved; 0 before
  SlotId base;
  bool base_shared = false;
};

// One entry of the prefix cache.
struct CacheEntryState {
  int depth = 0;              // tokens
  int checkpoint = 0;         // c
  bool with_records = false;  // otherwise it serves its checkpoint only
  bool on_host = false;
};

struct EngineState {
  std::vector<SequenceState> sequences;
  int running = 0;
  int waiting = 0;
  int paused = 0;

  PoolState rows;
  PoolState slots;
  int slots_reserved = 0;  // of the used ones: homes that wait for a fold
  PoolState pages;
  std::vector<CacheEntryState> cache_entries;
  std::int64_t host_cache_bytes = 0;

  EngineCounters counters;
};

std::string_view name_of(SequenceState::Phase phase);

}  // namespace replayssm
