// Faults D02 (noonghunna/club-3090#896, #920), D03 (kekzl/imp#500), D04 (ggml-org/llama.cpp#27537)
// and G01 (Neroued/ninfer#80) with the prefix cache on: who shares a slot only reads it, whoever
// writes one is alone with it, and equal requests say the same.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "cached_engine.h"

namespace replayssm {
namespace {

TEST(D03, WithACacheASlotThatIsWrittenHasOneHolder) {
  EngineOptions options = cached_options(8);
  CachedEngine cached(options, 16);
  int shared = 0;
  for (unsigned i = 0; i < 30 || !cached.scheduler->idle(); ++i) {
    if (i < 30) {
      GenerationRequest request{joined(cached.prompt(33, i % 3), {static_cast<int>(i)}), greedy(),
                                40, true};
      request.choices = i % 5 == 0 ? 2 : 1;
      ASSERT_TRUE(cached.scheduler->submit(std::move(request)).ok());
    }
    ASSERT_TRUE(cached.scheduler->step().ok());
    const EngineState state = cached.scheduler->state();
    std::map<int, int> readers;
    for (const SequenceState& sequence : state.sequences) {
      if (sequence.base.value < 0) continue;
      EXPECT_EQ(sequence.committed, sequence.checkpoint + sequence.pending());
      EXPECT_LE(sequence.pending(), 16);
      EXPECT_EQ(sequence.checkpoint % 16, 0);
      ++readers[sequence.base.value];
    }
    for (const auto& [slot, count] : readers) {
      EXPECT_GE(cached.engine->memory().slots().references(SlotId{slot}), count);
      shared += count > 1 ? 1 : 0;
    }
  }
  EXPECT_GT(shared, 0);
  cached.expect_nothing_held();
}

TEST(D02, EqualRequestsAtOnceAndAgainGiveOneAnswer) {
  for (const int stagger : {4, 1}) {  // G01: eight, a step apart
    CachedEngine cached(cached_options(), 16);
    const auto prompt = cached.prompt(33, 1);
    std::set<std::vector<TokenId>> outputs;
    std::size_t ended = 0;
    for (int submitted = 0; ended < 24;) {
      for (int i = 0; i < stagger && submitted < 24; ++i, ++submitted) {
        ASSERT_TRUE(cached.scheduler->submit({prompt, greedy(), 40, true}).ok());
      }
      auto events = cached.scheduler->step();
      ASSERT_TRUE(events.ok());
      for (const Finished& each : events->finished) {
        outputs.insert(each.output);
        ++ended;
      }
    }
    EXPECT_EQ(outputs.size(), 1u);
    EXPECT_EQ(*outputs.begin(), solo(cached_options(), prompt, 40));
    cached.expect_nothing_held();
  }
}

TEST(D04, OneEndsWhileAnotherPrefillsFromTheCacheItIsKeptIn) {
  EngineOptions options = cached_options(2);
  options.max_running_requests = 2;
  options.step_tokens = 16;
  options.logit_rows = 2;
  CachedEngine cached(options, 16);
  const auto long_prompt = cached.prompt(90, 2);
  for (int outputs = 1; outputs <= 8; ++outputs) {
    const auto short_prompt = first_tokens(long_prompt, 7);
    ASSERT_TRUE(cached.scheduler->submit({short_prompt, greedy(), outputs, true}).ok());
    const auto other = joined(first_tokens(long_prompt, 80), {outputs});
    ASSERT_TRUE(cached.scheduler->submit({other, greedy(), 5, true}).ok());
    ASSERT_TRUE(cached.scheduler->submit({cached.prompt(20, 3), greedy(), 5, true}).ok());
    ASSERT_TRUE(cached.scheduler->step().ok());
    if (outputs % 2 == 0) cached.scheduler->cancel(GenerationId{3 * (outputs - 1)});
    for (const Finished& finished : run_all(*cached.scheduler)) {
      if (finished.prompt_tokens != 81) continue;
      EXPECT_EQ(finished.output, solo(options, other, 5));
    }
  }
  cached.expect_nothing_held();
}

}  // namespace
}  // namespace replayssm
