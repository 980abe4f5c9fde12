// Fault B08 (basecompute/baseRT#31): with a single recurrent state requests run one after the
// other. Four equal requests need no more steps than one.
#include <gtest/gtest.h>

#include "small_engine.h"

namespace replayssm {
namespace {

int steps_for(int requests) {
  const auto engine = make_engine(small_options());
  Scheduler scheduler(*engine);
  const auto prompt = random_prompt(*engine, 12, 1);
  for (int i = 0; i < requests; ++i) {
    EXPECT_TRUE(scheduler.submit({prompt, greedy(), 40, true}).ok());
  }
  int steps = 0;
  for (; !scheduler.idle(); ++steps) {
    if (!scheduler.step().ok()) ADD_FAILURE();
  }
  return steps;
}

TEST(B08, FourRequestsAtOnceTakeTheStepsOfOne) { EXPECT_EQ(steps_for(4), steps_for(1)); }

}  // namespace
}  // namespace replayssm
