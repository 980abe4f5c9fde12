// Faults Q01 (ggml-org/llama.cpp#24496, #13262, #11720) and Q02 (sgl-project/sglang#34112, #34149):
// a request whose client is gone runs on, or ending it leaks its state or frees it twice. Here as
// far as the scheduler goes; sockets are the server's.
#include <gtest/gtest.h>

#include "small_engine.h"

namespace replayssm {
namespace {

// Cancels after so many steps, twice and once more after the end; the others are as if alone.
TEST(Q02, ARequestCancelledInAnyPhaseEndsAtTheNextStepAndGivesEverythingBack) {
  EngineOptions options = small_options();
  options.max_running_requests = 2;
  options.step_tokens = 16;
  options.logit_rows = 2;
  const auto engine = make_engine(options);
  const auto neighbour = random_prompt(*engine, 9, 1);
  const auto expected = solo(options, neighbour, 30);
  const auto victim = random_prompt(*engine, 100, 2);
  int queued = 0, prefilling = 0, decoding = 0;
  for (int steps = 0; steps < 14; ++steps) {
    for (const bool waits : {false, true}) {
      Scheduler scheduler(*engine);
      ASSERT_TRUE(scheduler.submit({neighbour, greedy(), 30, true}).ok());
      if (waits) {
        ASSERT_TRUE(scheduler.submit({neighbour, greedy(), 30, true}).ok());
      }
      const GenerationId id = scheduler.submit({victim, greedy(), 100, true}).value();
      int evaluated = 0;
      bool spoke = false;
      for (int i = 0; i < steps; ++i) {
        const auto events = scheduler.step();
        ASSERT_TRUE(events.ok());
        for (const auto& step : events->progress) {
          if (step.request == id) evaluated = step.evaluated;
        }
        for (const auto& token : events->tokens) spoke = spoke || token.request == id;
      }
      (spoke ? decoding : evaluated > 0 ? prefilling : queued) += 1;
      scheduler.cancel(id);
      scheduler.cancel(id);
      auto ended = scheduler.step();
      ASSERT_TRUE(ended.ok());
      ASSERT_EQ(ended->finished.size(), 1u) << "at the next step, Q01";
      EXPECT_EQ(ended->finished[0].request, id);
      EXPECT_EQ(ended->finished[0].reason, FinishReason::cancelled);
      ended->finished.clear();
      scheduler.cancel(id);
      EXPECT_EQ(engine->memory().rows().used(), waits ? 2 : 1);
      for (const Finished& each : run_all(scheduler)) {
        EXPECT_EQ(each.output, expected);
        EXPECT_EQ(each.reason, FinishReason::length);
      }
      expect_all_free(*engine);
    }
  }
  EXPECT_GT(queued, 0);
  EXPECT_GT(prefilling, 0);
  EXPECT_GT(decoding, 0);
}

// Behind another that waits, too: nobody has to make room for a request that is gone.
TEST(Q02, ARequestCancelledBehindTheHeadOfTheQueueEndsAtTheNextStep) {
  EngineOptions options = small_options();
  options.max_running_requests = 1;
  const auto engine = make_engine(options);
  Scheduler scheduler(*engine);
  std::vector<GenerationId> ids;
  for (unsigned i = 0; i < 4; ++i) {
    ids.push_back(scheduler.submit({random_prompt(*engine, 9, i), greedy(), 20, true}).value());
  }
  ASSERT_TRUE(scheduler.step().ok());
  scheduler.cancel(ids[3]);
  scheduler.cancel(ids[2]);
  const auto events = scheduler.step();
  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->finished.size(), 2u);
  EXPECT_EQ(events->finished[0].request, ids[2]);
  EXPECT_EQ(events->finished[1].request, ids[3]);
  const auto rest = run_all(scheduler);
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[1].output, solo(options, random_prompt(*engine, 9, 1), 20));
  expect_all_free(*engine);
}

}  // namespace
}  // namespace replayssm
