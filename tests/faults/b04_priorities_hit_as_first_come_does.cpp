// Fault B04 (vllm-project/vllm#52897): with priority scheduling the cache never hits.
#include <gtest/gtest.h>

#include "cached_engine.h"

namespace replayssm {
namespace {

TEST(B04, ARepeatedPromptHitsAlikeUnderBothPolicies) {
  for (const SchedulePolicy policy : {SchedulePolicy::first_come, SchedulePolicy::priority}) {
    CachedEngine cached(cached_options(), 64, 0, policy);
    const auto prompt = cached.prompt(100, 1);
    for (const int priority : {0, 2, -1}) {
      GenerationRequest request{prompt, greedy(), 10, true};
      request.priority = priority;
      ASSERT_TRUE(cached.scheduler->submit(std::move(request)).ok());
      const auto finished = run_all(*cached.scheduler);
      ASSERT_EQ(finished.size(), 1u);
      EXPECT_EQ(finished[0].reused_tokens, priority == 0 ? 0 : 99);
    }
  }
}

}  // namespace
}  // namespace replayssm
