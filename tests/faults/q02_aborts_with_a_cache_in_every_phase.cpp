// Faults Q01 (ggml-org/llama.cpp#24496, #13262, #11720) and Q02 (sgl-project/sglang#34112, #34149)
// with the prefix cache: a request is cancelled while it waits, in the middle of its prompt, while
// it decodes, while it is paused, and with several choices before and after they part.
#include <gtest/gtest.h>

#include <set>

#include "cached_engine.h"

namespace replayssm {
namespace {

TEST(Q02, ACancelledRequestEndsAtTheNextStepInEveryPhaseAndGivesEverythingBack) {
  EngineOptions options = cached_options(4);
  options.max_running_requests = 3;
  options.step_tokens = 16;
  options.logit_rows = 4;
  std::set<SequenceState::Phase> phases;
  bool before_fork = false;
  bool after_fork = false;
  const auto reference = make_engine(options);
  const auto neighbour = random_prompt(*reference, 9, 1);
  const auto victim = random_prompt(*reference, 70, 2);
  const auto expected = solo(options, neighbour, 30);
  for (const std::int64_t host : {std::int64_t{0}, std::int64_t{1} << 26}) {
    for (const int choices : {1, 2}) {
      for (int steps = 0; steps < 16; steps += tests::kSanitized ? 5 : 1) {
        CachedEngine cached(options, 16, host, SchedulePolicy::priority);
        Scheduler& scheduler = *cached.scheduler;
        GenerationRequest request{victim, greedy(), 100, true};
        request.choices = choices;
        request.branch_points = {20};
        const GenerationId id = scheduler.submit(request).value();
        std::set<GenerationId> neighbours;
        const auto add_neighbour = [&](int priority) {
          GenerationRequest other{neighbour, greedy(), 30, true};
          other.priority = priority;
          neighbours.insert(scheduler.submit(std::move(other)).value());
        };
        add_neighbour(0);
        for (int i = 0; i < steps; ++i) {
          // Two that go first: the victim is paused for one of them.
          if (i == 4 || i == 9) add_neighbour(1);
          if (i == 9) add_neighbour(1);
          const StepEvents step = scheduler.step().value();
          for (const Finished& each : step.finished) {
            EXPECT_EQ(each.output, expected);
          }
        }
        int victims = 0;
        for (const SequenceState& sequence : scheduler.state().sequences) {
          if (sequence.generation != id) continue;
          phases.insert(sequence.phase);
          ++victims;
        }
        if (choices == 2) (victims == 1 ? before_fork : after_fork) = true;
        scheduler.cancel(id);
        scheduler.cancel(id);
        const auto ended = scheduler.step();
        ASSERT_TRUE(ended.ok());
        int cancelled = 0;
        for (const Finished& each : ended->finished) {
          if (each.request != id) continue;
          EXPECT_EQ(each.reason, FinishReason::cancelled);
          ++cancelled;
        }
        EXPECT_EQ(cancelled, choices) << "at the next step, after " << steps;
        scheduler.cancel(id);
        for (const Finished& each : run_all(scheduler)) {
          EXPECT_EQ(neighbours.count(each.request), 1u);
          EXPECT_EQ(each.output, expected);
        }
        cached.expect_nothing_held();
      }
    }
  }
  EXPECT_EQ(phases.size(), 4u) << "waiting, prefill, decode, paused";
  EXPECT_TRUE(before_fork);
  EXPECT_TRUE(after_fork);
}

}  // namespace
}  // namespace replayssm
