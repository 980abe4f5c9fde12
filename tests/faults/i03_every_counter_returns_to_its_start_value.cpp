// Fault I03 (sgl-project/sglang#16067, #21404, #12693, #20182, #20185): state slots leak on abort,
// error, or when a request ends in a phase nobody thought of.
#include <gtest/gtest.h>

#include <random>

#include "small_engine.h"

namespace replayssm {
namespace {

TEST(I03, FiveHundredRequestsOfEveryEndLeaveNothingHeld) {
  EngineOptions options = small_options();
  options.slots_beyond_requests = 1;
  const auto engine = make_engine(options);
  Scheduler scheduler(*engine);
  std::mt19937 random(1);
  std::vector<GenerationId> ids;
  int ended = 0;
  int refused = 0;
  for (unsigned i = 0; ended + refused < 500; ++i) {
    if (i < 500) {
      const int tokens = static_cast<int>(random() % 30);  // 0 is refused
      const int outputs = static_cast<int>(random() % 12) + (random() % 20 == 0 ? 1000 : 1);
      SamplingParams params;
      params.temperature = random() % 2 == 0 ? 0.0 : 50.0;
      params.seed = i;
      const auto id = scheduler.submit({random_prompt(*engine, tokens, i), params, outputs, false});
      if (id.ok()) {
        ids.push_back(*id);
      } else {
        ++refused;
      }
    }
    if (!ids.empty() && random() % 5 == 0) scheduler.cancel(ids[random() % ids.size()]);
    const auto events = scheduler.step();
    ASSERT_TRUE(events.ok());
    ended += static_cast<int>(events->finished.size());
  }
  EXPECT_GT(refused, 10);
  EXPECT_TRUE(scheduler.idle());
  expect_all_free(*engine);
}

}  // namespace
}  // namespace replayssm
