// Fault A15 (sgl-project/sglang#33773, #36770, #40128): a failed state allocation is an assertion,
// which kills the server when slots run out.
#include <gtest/gtest.h>

#include "small_engine.h"

namespace replayssm {
namespace {

EngineOptions two_slots() {
  EngineOptions options = small_options();
  options.max_running_requests = 2;
  return options;
}

TEST(A15, AThirdRequestWaitsForASlot) {
  const EngineOptions options = two_slots();
  const auto engine = make_engine(options);
  Scheduler scheduler(*engine);
  for (unsigned i = 0; i < 3; ++i) {
    ASSERT_TRUE(scheduler.submit({random_prompt(*engine, 20, i), greedy(), 30, true}).ok());
  }
  ASSERT_TRUE(scheduler.step().ok());
  EXPECT_EQ(scheduler.running(), 2);
  const auto finished = run_all(scheduler);
  ASSERT_EQ(finished.size(), 3u);
  for (unsigned i = 0; i < 3; ++i) {
    EXPECT_EQ(finished[i].output, solo(options, random_prompt(*engine, 20, i), 30));
  }
  expect_all_free(*engine);
}

TEST(A15, AForkOrAdmissionWithoutRoomIsAnErrorWithTheNumbers) {
  const auto engine = make_engine(two_slots());
  const auto prompt = random_prompt(*engine, 20, 1);
  const Sequence first = engine->admit(prompt, greedy()).value();
  const Sequence second = engine->admit(prompt, greedy()).value();
  const auto third = engine->admit(prompt, greedy());
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().message, "state slots: all 2 are in use");
  const auto fork = engine->fork(first, 1);
  ASSERT_FALSE(fork.ok());
  EXPECT_EQ(fork.error().message, "running requests: all 2 rows are in use");
}

// Slots run out exactly when two forks are due to fold: one of them waits a step.
TEST(A15, ADueFoldWithoutAFreeSlotDefersTheRowAndChangesNoResult) {
  EngineOptions options = small_options();
  options.max_running_requests = 4;
  const auto engine = make_engine(options);
  const auto prompt = random_prompt(*engine, 28, 1);
  const auto expected = solo(options, prompt, 40);
  Sequence parent = engine->admit(prompt, greedy()).value();
  const StepRow row = Engine::next_row(parent, 64);
  ASSERT_TRUE(engine->prepare(row).ok());
  ASSERT_TRUE(engine->step({&row, 1}).ok());
  Scheduler scheduler(*engine);
  for (unsigned i = 0; i < 3; ++i) {
    ASSERT_TRUE(scheduler.submit(engine->fork(parent, i).value(), 39, true).ok());
  }
  ASSERT_TRUE(scheduler.submit(std::move(parent), 39, true).ok());
  EXPECT_EQ(engine->memory().slots().used(), 1);
  const auto finished = run_all(scheduler);
  ASSERT_EQ(finished.size(), 4u);
  for (const Finished& each : finished) {
    EXPECT_EQ(each.reason, FinishReason::length);
    EXPECT_TRUE(std::equal(each.output.begin(), each.output.end(), expected.begin() + 1));
  }
  expect_all_free(*engine);
}

}  // namespace
}  // namespace replayssm
