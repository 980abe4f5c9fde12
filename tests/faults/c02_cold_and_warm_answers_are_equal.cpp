// Faults C02 (vllm-project/vllm-ascend#16451), C03 (jundot/omlx#2496) and C05 (JamePeng/
// llama-cpp-python#59), C06 (ggml-org/llama.cpp#29092) with a prefix cache: what a request is told
// does not depend on what the cache had for it.
#include <gtest/gtest.h>

#include "cached_engine.h"

namespace replayssm {
namespace {

TEST(C02, TwentyPromptsSayTheSameColdAndWarm) {
  for (const char* model : kModelKinds) {
    for (const DType type : {DType::f32, DType::bf16}) {
      if (tests::kSanitized && (model == kModelKinds[0]) != (type == DType::f32)) continue;
      EngineOptions options = cached_options();
      options.model_path = small_checkpoint(model);
      options.activations = type;
      options.state_type = type;
      CachedEngine cached(options, 32);
      int reused = 0;
      const int prompts = tests::rounds(20);
      for (unsigned i = 0; i < static_cast<unsigned>(prompts); ++i) {
        const auto prompt =
            joined(cached.prompt(40, i % 3), cached.prompt(1 + static_cast<int>(i * 5 % 37), i));
        const auto cold = solo(options, prompt, 12);
        for (int again = 0; again < 3; ++again) {
          const Finished finished = cached.ask(prompt, 12);
          EXPECT_EQ(finished.output, cold) << model << " prompt " << i << " time " << again;
          reused += finished.reused_tokens;
        }
      }
      EXPECT_GT(reused, prompts * 2 * 40);
      cached.expect_nothing_held();
    }
  }
}

// C03: on a model whose gate is a vector a channel, a second turn that hits is as a cold one.
TEST(C03, TheSecondTurnOfAChatOnAKdaModelHitsAndIsAsCold) {
  EngineOptions options = cached_options();
  options.model_path = small_checkpoint(kModelKinds[1]);
  for (const int tokens : {3, 31, 32, 70}) {
    for (const std::int64_t host : {std::int64_t{0}, std::int64_t{1} << 26}) {
      CachedEngine cached(options, 64, host);
      const auto prompt = cached.prompt(tokens, 1);
      const Finished first = cached.ask(prompt, 20);
      while (host > 0 && cached.cache.evict_one()) {
      }
      const auto next = joined(joined(prompt, first.output), cached.prompt(9, 2));
      const Finished second = cached.ask(next, 20);
      EXPECT_EQ(second.reused_tokens, tokens + 19);
      EXPECT_EQ(second.output, solo(options, next, 20)) << tokens;
    }
  }
}

// C05, C06: one running request, one kept: every slot and row comes round again, full of NaN.
TEST(C06, TwentyNineDocumentsThroughASmallCacheAreAsOnAFreshEngine) {
  EngineOptions options = cached_options(1);
  options.max_running_requests = 1;
  CachedEngine cached(options, 16);
  for (unsigned i = 0; i < 29; ++i) {
    const auto prompt = cached.prompt(1 + static_cast<int>(i * 7 % 40), i);
    EXPECT_EQ(cached.ask(prompt, 6).output, solo(options, prompt, 6)) << "document " << i;
  }
  cached.expect_nothing_held();
}

}  // namespace
}  // namespace replayssm
