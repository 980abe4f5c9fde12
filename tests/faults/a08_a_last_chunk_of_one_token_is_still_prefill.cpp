// Fault A08 (vllm-project/vllm#49847): the last chunk of a prompt has one token, is taken for a
// decode step, and replays against a stale cursor.
#include <gtest/gtest.h>

#include "small_engine.h"

namespace replayssm {
namespace {

TEST(A08, PromptsOfAChunkAndOneTokenMoreContinueAsInOneChunk) {
  EngineOptions chunked = small_options();
  chunked.step_tokens = 64;
  EngineOptions whole = small_options();
  whole.step_tokens = 256;
  whole.logit_rows = 4;
  const auto engine = make_engine(chunked);
  for (const int tokens : {1, 63, 64, 65, 127, 128, 129, 193}) {
    const auto prompt = random_prompt(*engine, tokens, static_cast<unsigned>(tokens));
    EXPECT_EQ(solo(chunked, prompt, 8), solo(whole, prompt, 8)) << tokens;
  }
}

TEST(A08, ThePhaseIsThatOfTheTokenNotOfTheirNumber) {
  const auto engine = make_engine(small_options());
  Sequence sequence = engine->admit(random_prompt(*engine, 65, 1), greedy()).value();
  const StepRow first = Engine::next_row(sequence, 64);
  ASSERT_TRUE(engine->prepare(first).ok());
  ASSERT_TRUE(engine->step({&first, 1}).ok());
  const StepRow last = Engine::next_row(sequence, 64);
  EXPECT_EQ(last.tokens, 1);
  EXPECT_EQ(last.phase, Phase::prefill);
  EXPECT_EQ(first.logits, 0);
  EXPECT_EQ(last.logits, 1);
  ASSERT_TRUE(engine->prepare(last).ok());
  ASSERT_TRUE(engine->step({&last, 1}).ok());
  EXPECT_EQ(Engine::next_row(sequence, 64).phase, Phase::decode);
}

}  // namespace
}  // namespace replayssm
