// E01. vllm-project/vllm#39273: n-gram drafts corrupted the output of models with linear attention.
// 256 greedy tokens after a prompt that repeats itself are those of plain decoding.
#include <gtest/gtest.h>

#include "small_engine.h"

namespace replayssm {
namespace {

TEST(E01, ARepetitivePromptGoesOnAsInPlainDecoding) {
  constexpr int kOutputs = tests::rounds(256);
  for (const char* model : kModelKinds) {
    EngineOptions plain = small_options();
    plain.model_path = small_checkpoint(model);
    plain.context_length = 512;
    EngineOptions options = plain;
    options.speculation.algorithm = SpeculativeAlgorithm::ngram;
    const auto engine = make_engine(options);
    const auto piece = random_prompt(*engine, 12, 3);
    std::vector<TokenId> prompt;
    for (int i = 0; i < 4; ++i) prompt.insert(prompt.end(), piece.begin(), piece.end());
    Scheduler scheduler(*engine);
    ASSERT_TRUE(scheduler.submit({prompt, greedy(), kOutputs, true}).ok());
    const auto finished = run_all(scheduler);
    ASSERT_EQ(finished.size(), 1u);
    EXPECT_EQ(finished.front().output, solo(plain, prompt, kOutputs)) << model;
    EXPECT_GT(finished.front().counters.drafts, 0) << model;
  }
}

}  // namespace
}  // namespace replayssm
