// A small engine with a prefix cache and a scheduler over it.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "cache/prefix_cache.h"
#include "cache/sequence_image.h"
#include "small_engine.h"

namespace replayssm {

// small_options() with room for a cache of so many sequences.
inline EngineOptions cached_options(int kept = 6) {
  EngineOptions options = small_options();
  options.kept_sequences_least = kept;
  return options;
}

struct CachedEngine {
  explicit CachedEngine(const EngineOptions& options, int track_interval = 64,
                        std::int64_t host_bytes = 0,
                        SchedulePolicy policy = SchedulePolicy::first_come)
      : engine(make_engine(options)),
        cache(engine->memory(), engine->ops(), {engine->plan().kept_rows, host_bytes}) {
    SchedulerOptions scheduling;
    scheduling.policy = policy;
    scheduling.cache = &cache;
    scheduling.track_interval = track_interval;
    scheduler = std::make_unique<Scheduler>(*engine, scheduling);
  }

  // Greedy, alone.
  Finished ask(std::vector<TokenId> prompt, int tokens = 20, std::vector<int> branch_points = {}) {
    GenerationRequest request{std::move(prompt), greedy(), tokens, true};
    request.branch_points = std::move(branch_points);
    const auto id = scheduler->submit(std::move(request));
    EXPECT_TRUE(id.ok()) << (id.ok() ? "" : id.error().message);
    auto finished = run_all(*scheduler);
    EXPECT_EQ(finished.size(), 1u);
    return finished.empty() ? Finished{} : std::move(finished.front());
  }
  std::vector<TokenId> prompt(int tokens, unsigned seed) const {
    return random_prompt(*engine, tokens, seed);
  }
  // Gives up the cache: then nothing is held.
  void expect_nothing_held() {
    EXPECT_TRUE(scheduler->idle());
    cache.clear();
    EXPECT_EQ(cache.host_bytes(), 0);
    EXPECT_EQ(cache.rows_held(), 0);
    expect_all_free(*engine);
  }

  std::unique_ptr<Engine> engine;
  PrefixCache cache;
  std::unique_ptr<Scheduler> scheduler;
};

inline std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline std::vector<TokenId> first_tokens(const std::vector<TokenId>& tokens, int count) {
  return {tokens.begin(), tokens.begin() + count};
}

// Everything that a sequence holds, as the bytes that moving it would write: state, conv tail,
// records, conv inputs, keys and values.
inline std::vector<std::byte> memory_of(Engine& engine, const Sequence& sequence) {
  ByteWriter out;
  EXPECT_TRUE(write_image(engine.memory(), sequence.memory, engine.ops(), out).ok());
  return std::move(out).take();
}

}  // namespace replayssm
