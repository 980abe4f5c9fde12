// Fault A14 (sgl-project/sglang#31474): the snapshots that are tracked along a prompt for the
// prefix cache are never written, and a hit on one goes on from whatever was in its memory.
#include <gtest/gtest.h>

#include <set>

#include "cached_engine.h"

namespace replayssm {
namespace {

// A prompt that parts from the first one right after each tracked checkpoint; all memory that was
// not written is NaN.
TEST(A14, AHitOnEveryTrackedCheckpointGoesOnAsACold) {
  for (const char* model : kModelKinds) {
    for (const DType state : {DType::f32, DType::bf16}) {
      EngineOptions options = cached_options(8);
      options.model_path = small_checkpoint(model);
      options.state_type = state;
      options.step_tokens = 50;  // chunks that end nowhere near a multiple of the interval
      options.logit_rows = 8;
      CachedEngine cached(options, 32);
      const auto prompt = cached.prompt(150, 1);
      const Finished whole = cached.ask(prompt, 60);
      const auto text = joined(prompt, whole.output);
      std::set<int> tracked;
      for (const auto& entry : cached.cache.entries()) {
        if (!entry.with_records) tracked.insert(entry.cursor.checkpoint.tokens);
      }
      ASSERT_GE(tracked.size(), 5u);
      for (const int depth : tracked) {
        const auto other =
            joined(first_tokens(text, depth), {(text[static_cast<std::size_t>(depth)] + 1) % 500});
        const Finished hit = cached.ask(other, 12);
        EXPECT_EQ(hit.reused_tokens, depth);
        EXPECT_EQ(hit.output, solo(options, other, 12)) << model << " at " << depth;
      }
      cached.expect_nothing_held();
    }
  }
}

}  // namespace
}  // namespace replayssm
