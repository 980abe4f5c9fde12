// Fault B06 (ikawrakow/ik_llama.cpp#1762): agents branch off inside long prompts, and the nearest
// checkpoint is thousands of tokens back.
#include <gtest/gtest.h>

#include "cached_engine.h"

namespace replayssm {
namespace {

TEST(B06, ABranchAnywhereInALongPromptEvaluatesNoMoreThanTheInterval) {
  for (const int interval : {64, 256}) {
    for (const int branch : {300, 677, 750, 899}) {
      if (tests::kSanitized && branch != 750) continue;
      EngineOptions options = cached_options(12);
      options.context_length = 1024;
      CachedEngine cached(options, interval);
      const auto prompt = cached.prompt(900, 1);
      cached.ask(prompt, 1);
      const Finished other = cached.ask(joined(first_tokens(prompt, branch), {7, 7, 7}), 1);
      EXPECT_LE(branch - other.reused_tokens, interval) << "branch at " << branch;
      EXPECT_EQ(other.generation->lost_tokens, branch - other.reused_tokens);
    }
  }
}

}  // namespace
}  // namespace replayssm
