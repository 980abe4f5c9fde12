// Fault C09 (modular/modular#6681; LMCache/LMCache#4247; waybarrios/vllm-mlx#217): keys and values
// of one depth with a state of another. An entry of the prefix cache is one object: what it gives
// has one depth in all its parts, at any depth it is asked for, from the pools or from the host.
#include <gtest/gtest.h>

#include "cached_engine.h"

namespace replayssm {
namespace {

TEST(C09, WhatAnEntryGivesHasOneDepthInAllItsParts) {
  for (const std::int64_t host : {std::int64_t{0}, std::int64_t{1} << 26}) {
    CachedEngine cached(cached_options(12), 16, host);
    const auto prompt = cached.prompt(90, 1);
    cached.ask(prompt, 30);
    while (host > 0 && cached.cache.evict_one()) {
    }
    const SequenceMemory& memory = cached.engine->memory();
    int hits = 0;
    for (int most = 0; most <= 90; ++most) {
      const auto match = cached.cache.find(prompt, most);
      EXPECT_LE(match.tokens, most);
      EXPECT_GE(match.tokens, most / 16 * 16 - 16);
      if (match.tokens == 0) continue;
      const auto resumed = cached.cache.resume(match);
      ASSERT_TRUE(resumed.ok()) << resumed.error().message;
      ++hits;
      const Cursor& cursor = resumed->cursor();
      EXPECT_EQ(cursor.committed.tokens, match.tokens);
      EXPECT_EQ(cursor.checkpoint.tokens % 16, 0);
      EXPECT_LE(cursor.pending(), 16);
      EXPECT_EQ(static_cast<int>(resumed->pages().size()), memory.layout().pages_for(match.tokens));
      const auto row = static_cast<std::size_t>(resumed->row().value);
      EXPECT_EQ(memory.views().cursors.committed[row], cursor.committed);
      EXPECT_EQ(memory.views().cursors.checkpoint[row], cursor.checkpoint);
      EXPECT_EQ(memory.views().cursors.base[row], resumed->base());
      // Shared with the entry, and so nobody's to write.
      EXPECT_GT(memory.slots().references(resumed->base()), 1);
    }
    EXPECT_GT(hits, 50);
    cached.expect_nothing_held();
  }
}

// A depth that the entry does not have the parts for is a miss, not a guess.
TEST(C09, ADepthBetweenIsRefused) {
  CachedEngine cached(cached_options());
  auto sequence = cached.engine->admit(cached.prompt(60, 1), greedy());
  ASSERT_TRUE(sequence.ok());
  const StepRow row = Engine::next_row(*sequence, 64);
  ASSERT_TRUE(cached.engine->prepare(row).ok());
  ASSERT_TRUE(cached.engine->step({&row, 1}).ok());
  SequenceMemory& memory = cached.engine->memory();
  const int rows = memory.rows().used();
  for (int depth = 0; depth <= 61; ++depth) {
    const bool served = depth == 60 || depth == 59 || depth == 48;
    EXPECT_EQ(memory.fork_at(sequence->memory, Depth{depth}).ok(), served) << depth;
  }
  EXPECT_EQ(memory.rows().used(), rows);
}

TEST(C09, ASequenceIsNotKeptUnderTokensOfAnotherDepth) {
  CachedEngine cached(cached_options());
  const auto prompt = cached.prompt(60, 1);
  for (const int tokens : {0, 1, 58, 59, 60}) {
    auto sequence = cached.engine->admit(prompt, greedy());
    ASSERT_TRUE(sequence.ok());
    const StepRow row = Engine::next_row(*sequence, 59);
    ASSERT_TRUE(cached.engine->prepare(row).ok());
    ASSERT_TRUE(cached.engine->step({&row, 1}).ok());
    EXPECT_EQ(cached.cache.keep(first_tokens(prompt, tokens), std::move(sequence->memory)),
              tokens == 59);
  }
  EXPECT_EQ(cached.cache.entries().size(), 1u);
  cached.expect_nothing_held();
}

}  // namespace
}  // namespace replayssm
