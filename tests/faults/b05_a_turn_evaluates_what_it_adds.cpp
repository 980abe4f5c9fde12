// Fault B05 (ggml-org/llama.cpp#18497, #21831, #22746, #24714, #24035): hybrid models evaluate the
// whole prompt again at every turn of a chat.
#include <gtest/gtest.h>

#include "cached_engine.h"

namespace replayssm {
namespace {

constexpr int kTurns = 3;
constexpr int kAdded = 40;

TEST(B05, EachOfThreeTurnsEvaluatesWhatItAddsAndAtMostAPageMore) {
  for (const char* model : kModelKinds) {
    for (const Recurrence recurrence : {Recurrence::replay, Recurrence::packed}) {
      EngineOptions options = cached_options();
      options.model_path = small_checkpoint(model);
      options.recurrence = recurrence;
      CachedEngine cached(options);
      std::vector<TokenId> chat;
      for (int turn = 0; turn < kTurns; ++turn) {
        chat = joined(chat, cached.prompt(kAdded, static_cast<unsigned>(turn)));
        const Finished finished = cached.ask(chat, 15);
        EXPECT_LE(finished.prompt_tokens - finished.reused_tokens, kAdded + options.page_tokens);
        // Its own work: the rest of the prompt, and every output but the last.
        EXPECT_EQ(finished.counters.tokens_evaluated,
                  finished.prompt_tokens - finished.reused_tokens + 14);
        EXPECT_EQ(finished.output, solo(options, chat, 15)) << model << " turn " << turn;
        chat = joined(chat, finished.output);
      }
    }
  }
}

// Several chats in turns, on a cache that holds them all.
TEST(B05, ChatsInTurnsEachGoOnWhereTheyWere) {
  CachedEngine cached(cached_options(16), 256);
  std::vector<std::vector<TokenId>> chats(4);
  for (int turn = 0; turn < kTurns; ++turn) {
    for (unsigned i = 0; i < chats.size(); ++i) {
      chats[i] = joined(chats[i], cached.prompt(kAdded, 10 * i + static_cast<unsigned>(turn)));
      const Finished finished = cached.ask(chats[i], 10);
      EXPECT_LE(finished.prompt_tokens - finished.reused_tokens, kAdded + 16) << turn;
      chats[i] = joined(chats[i], finished.output);
    }
  }
}

}  // namespace
}  // namespace replayssm
