// Fault A01 (sgl-project/sglang#38485, #38494): a request that is taken off its row loses the
// transitions that are in its ring and not folded yet, and goes on from an old checkpoint.
#include <gtest/gtest.h>

#include "small_engine.h"

namespace replayssm {
namespace {

TEST(A01, APausedSequenceKeepsItsPendingRecords) {
  const EngineOptions options = small_options();
  const auto engine = make_engine(options);
  for (const int prompt_tokens : {1, 9, 16, 20}) {
    const auto prompt = random_prompt(*engine, prompt_tokens, 5);
    const auto expected = solo(options, prompt, 27);
    for (int pause_at = 1; pause_at <= 20; ++pause_at) {
      Sequence sequence = engine->admit(prompt, greedy()).value();
      const auto run = [&](int outputs) {
        while (static_cast<int>(sequence.sampling.outputs()) < outputs) {
          const StepRow row = Engine::next_row(sequence, 64);
          ASSERT_TRUE(engine->prepare(row).ok());
          ASSERT_TRUE(engine->step({&row, 1}).ok());
        }
      };
      run(pause_at);
      const int pending = sequence.memory.cursor().pending();
      EXPECT_GT(pending, 0) << "nothing is folded for a pause, not even a whole block";
      const auto archive = engine->pause(sequence).value();
      EXPECT_EQ(sequence.memory.cursor().pending(), pending);
      sequence = Sequence{};
      sequence = engine->resume(archive).value();
      EXPECT_EQ(sequence.memory.cursor().pending(), pending);
      run(27);
      EXPECT_EQ(std::vector(sequence.tokens.end() - 27, sequence.tokens.end()), expected)
          << "prompt " << prompt_tokens << ", paused after " << pause_at;
    }
  }
}

}  // namespace
}  // namespace replayssm
