// Faults D02 (noonghunna/club-3090#896, #920) and G01 (Neroued/ninfer#80): equal greedy requests
// give several answers, because of what else is in the batch or how many tokens a step has. Exact
// with
// --deterministic, whatever joins when.
#include <gtest/gtest.h>

#include <set>

#include "small_engine.h"

namespace replayssm {
namespace {

std::set<std::vector<TokenId>> answers(const EngineOptions& options, int requests, int stagger) {
  const auto engine = make_engine(options);
  Scheduler scheduler(*engine);
  const auto prompt = random_prompt(*engine, 33, 1);
  std::set<std::vector<TokenId>> outputs;
  std::size_t finished = 0;
  for (int submitted = 0; finished < static_cast<std::size_t>(requests);) {
    for (int i = 0; i < std::max(stagger, 1) && submitted < requests; ++i, ++submitted) {
      EXPECT_TRUE(scheduler.submit({prompt, greedy(), 40, true}).ok());
    }
    auto events = scheduler.step();
    if (!events.ok()) {
      ADD_FAILURE() << events.error().message;
      break;
    }
    for (const Finished& each : events->finished) {
      outputs.insert(each.output);
      ++finished;
    }
  }
  return outputs;
}

TEST(D02, FourEqualRequestsAtOnceGiveOneAnswer) {
  EXPECT_EQ(answers(small_options(), 4, 4).size(), 1u);
}

TEST(G01, EightEqualRequestsStaggeredByAStepGiveOneAnswer) {
  EngineOptions options = small_options();
  options.max_running_requests = 8;
  EXPECT_EQ(answers(options, 8, 1).size(), 1u);
  options.activations = DType::bf16;
  EXPECT_EQ(answers(options, 8, 1).size(), 1u);
  options.threads = 2;
  EXPECT_EQ(answers(options, 8, 1).size(), 1u);
}

}  // namespace
}  // namespace replayssm
