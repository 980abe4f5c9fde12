// Fault B07 (ml-explore/mlx-lm#1162, #980): a cache that cannot be cut back gives nothing when the
// last token differs.
#include <gtest/gtest.h>

#include "cached_engine.h"

namespace replayssm {
namespace {

TEST(B07, AChangedLastTokenReusesTheRestAndSaysSo) {
  for (const int tokens : {2, 16, 17, 100}) {
    CachedEngine cached(cached_options());
    auto prompt = cached.prompt(tokens, 1);
    cached.ask(prompt);
    prompt.back() = (prompt.back() + 1) % 500;
    const Finished second = cached.ask(prompt);
    EXPECT_EQ(second.reused_tokens, tokens - 1);
    EXPECT_EQ(second.generation->cached_tokens, tokens - 1);
    EXPECT_EQ(second.output, solo(cached_options(), prompt, 20));
  }
}

TEST(B07, AnEarlierChangeReusesWhatLiesBeforeIt) {
  CachedEngine cached(cached_options(), 32);
  auto prompt = cached.prompt(100, 1);
  cached.ask(prompt);
  prompt[70] = (prompt[70] + 1) % 500;
  const Finished second = cached.ask(prompt);
  EXPECT_GE(second.reused_tokens, 70 - 32);
  EXPECT_EQ(second.output, solo(cached_options(), prompt, 20));
}

}  // namespace
}  // namespace replayssm
