// Fault C06 (ggml-org/llama.cpp#29092): the state of the request before is still in the slot, and
// text of it comes out of the next.
#include <gtest/gtest.h>

#include "small_engine.h"

namespace replayssm {
namespace {

void expect_as_cold(Recurrence recurrence, Poison poison) {
  EngineOptions options = small_options();
  options.max_running_requests = 1;
  options.recurrence = recurrence;
  options.poison = poison;
  const auto engine = make_engine(options);
  Scheduler scheduler(*engine);
  for (unsigned i = 0; i < 29; ++i) {
    const auto prompt = random_prompt(*engine, 1 + static_cast<int>(i * 7 % 40), i);
    ASSERT_TRUE(scheduler.submit({prompt, greedy(), 6, true}).ok());
    EXPECT_EQ(run_all(scheduler).front().output, solo(options, prompt, 6)) << "document " << i;
  }
}

TEST(C06, TwentyNineDocumentsOnOneSlotAreAsOnAFreshEngine) {
  expect_as_cold(Recurrence::replay, Poison::off);
  expect_as_cold(Recurrence::packed, Poison::off);
}

TEST(C06, AlsoWhenFreedMemoryIsPoisoned) {
  expect_as_cold(Recurrence::replay, Poison::on);
  expect_as_cold(Recurrence::packed, Poison::on);
}

}  // namespace
}  // namespace replayssm
