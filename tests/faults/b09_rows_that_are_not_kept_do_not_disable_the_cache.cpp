// Fault B09 (tonyd2wild/GLM-5.3-Flash-NVFP4-DFlash2-2x-DGX-Spark#13): one pool of scratch memory a
// request that opts out of prefix caching turns the cache off for all. Here the rows (records, conv
// inputs) are such a pool: a cache that may keep none of them still serves checkpoints.
#include <gtest/gtest.h>

#include "cached_engine.h"

namespace replayssm {
namespace {

TEST(B09, WithoutRowsTheCacheStillServesCheckpoints) {
  const EngineOptions options = cached_options();
  const auto engine = make_engine(options);
  PrefixCache cache(engine->memory(), engine->ops(), {0, 0});
  SchedulerOptions scheduling;
  scheduling.cache = &cache;
  scheduling.track_interval = 32;
  Scheduler scheduler(*engine, scheduling);
  const auto prompt = random_prompt(*engine, 100, 1);
  const auto expected = solo(options, prompt, 10);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(scheduler.submit({prompt, greedy(), 10, true}).ok());
    const auto finished = run_all(scheduler);
    EXPECT_EQ(finished.front().output, expected);
    EXPECT_GE(finished.front().reused_tokens, i == 0 ? 0 : 64);
    EXPECT_EQ(cache.rows_held(), 0);
  }
  cache.clear();
  expect_all_free(*engine);
}

}  // namespace
}  // namespace replayssm
