// Fault D04 (ggml-org/llama.cpp#27537): with two requests at once, one ends while the other is in
// the middle of its prompt, and an assertion in the recurrent memory fails.
#include <gtest/gtest.h>

#include "small_engine.h"

namespace replayssm {
namespace {

TEST(D04, EveryCoincidenceOfAnEndAndAPrefillIsHarmless) {
  EngineOptions options = small_options();
  options.max_running_requests = 2;
  options.step_tokens = 16;
  options.logit_rows = 2;
  const auto engine = make_engine(options);
  const auto long_prompt = random_prompt(*engine, 90, 2);
  const auto expected = solo(options, long_prompt, 5);
  for (int outputs = 1; outputs <= 8; ++outputs) {
    Scheduler scheduler(*engine);
    ASSERT_TRUE(scheduler.submit({random_prompt(*engine, 7, 1), greedy(), outputs, true}).ok());
    ASSERT_TRUE(scheduler.submit({long_prompt, greedy(), 5, true}).ok());
    const auto third = scheduler.submit({random_prompt(*engine, 20, 3), greedy(), 5, true});
    ASSERT_TRUE(third.ok());
    ASSERT_TRUE(scheduler.step().ok());
    if (outputs % 2 == 0) scheduler.cancel(GenerationId{0});
    const auto finished = run_all(scheduler);
    EXPECT_EQ(finished[finished.size() - 2].output, expected) << outputs;
  }
  expect_all_free(*engine);
}

}  // namespace
}  // namespace replayssm
