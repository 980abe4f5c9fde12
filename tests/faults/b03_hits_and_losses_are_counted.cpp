// Fault B03 (vllm-project/vllm#51198, #51250): the hit rate is 0 and nothing says so, or why.
#include <gtest/gtest.h>

#include "cached_engine.h"
#include "listener.h"

namespace replayssm {
namespace {

std::int64_t lost(const EngineCounters& counters, PrefixLoss reason) {
  return counters.prefix_tokens_lost[static_cast<std::size_t>(reason)];
}

TEST(B03, ARepeatedPromptRaisesTheHitsAndWhatIsLostHasAReason) {
  CachedEngine cached(cached_options());
  const auto prompt = cached.prompt(60, 1);
  cached.ask(prompt, 1);
  const EngineCounters& counters = cached.scheduler->counters();
  EXPECT_EQ(counters.prefix_queries, 60);
  EXPECT_EQ(counters.prefix_hits, 0);
  const Finished second = cached.ask(prompt, 1);
  EXPECT_EQ(counters.prefix_queries, 120);
  EXPECT_EQ(counters.prefix_hits, 59);
  EXPECT_EQ(second.generation->cached_tokens, 59);
  // Parts inside the last block: 48 of 55 come back, and the rest has a reason.
  cached.ask(joined(first_tokens(prompt, 55), {1, 2}), 1);
  EXPECT_EQ(counters.prefix_hits, 59 + 48);
  EXPECT_EQ(lost(counters, PrefixLoss::tail), 7);
  for (unsigned i = 0; i < 14; ++i) cached.ask(cached.prompt(40, 50 + i), 1);
  // Where the two parted a checkpoint is left, without a row.
  EXPECT_EQ(cached.ask(prompt, 1).reused_tokens, 48);
  EXPECT_EQ(lost(counters, PrefixLoss::evicted), 59 - 48);
}

TEST(B03, WithTheCacheOffNothingIsLookedUp) {
  ServiceOptions options;
  options.engine = small_options();
  options.prefix_cache = false;
  const auto service = EngineService::start(options);
  ASSERT_TRUE(service.ok());
  for (int i = 0; i < 2; ++i) {
    const auto listener = Listener::make();
    const auto id = (*service)->submit({{1, 2, 3}, greedy(), 2, true}, Listener::handler(listener));
    ASSERT_TRUE(std::holds_alternative<GenerationId>(id));
    ASSERT_TRUE(listener->wait());
    EXPECT_EQ(listener->finished().cached_tokens, 0);
    EXPECT_EQ(listener->finished().lost_tokens, 0);
  }
  EXPECT_FALSE((*service)->options().prefix_cache);
  EXPECT_EQ((*service)->plan().kept_rows, 0);
  EXPECT_EQ((*service)->state().counters.prefix_queries, 0);
  expect_start_values(**service);
}

}  // namespace
}  // namespace replayssm
