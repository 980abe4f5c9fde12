// Fault C05 (JamePeng/llama-cpp-python#59): the second call on one engine gives garbage, since the
// state was not reset.
#include <gtest/gtest.h>

#include "small_engine.h"

namespace replayssm {
namespace {

TEST(C05, TwoUnrelatedPromptsOnOneSlotAreAsOnTwoEngines) {
  EngineOptions options = small_options();
  options.max_running_requests = 1;
  for (const Recurrence recurrence : {Recurrence::replay, Recurrence::packed}) {
    options.recurrence = recurrence;
    const auto engine = make_engine(options);
    Scheduler scheduler(*engine);
    // The second is shorter than a convolution reaches, so that all it could read is the first's.
    for (const int tokens : {50, 2}) {
      const auto prompt = random_prompt(*engine, tokens, static_cast<unsigned>(tokens));
      ASSERT_TRUE(scheduler.submit({prompt, greedy(), 20, true}).ok());
      EXPECT_EQ(run_all(scheduler).front().output, solo(options, prompt, 20)) << tokens;
    }
  }
}

}  // namespace
}  // namespace replayssm
