// C01. vllm-project/vllm#53912, #43559, #47194, #48375, #47861: with speculation the cache kept
// states that rejected drafts had gone into, and the same question was answered worse each time.
// What is kept after drafts were verified is what plain decoding keeps.
#include <gtest/gtest.h>

#include "block_drafter_options.h"
#include "cached_engine.h"
#include "draft_head.h"
#include "drafters.h"
#include "test_checkpoint.h"

namespace replayssm {
namespace {

constexpr int kPrompt = 45, kAnswer = 40;

EngineOptions options_of(const char* model, DType state) {
  EngineOptions options = cached_options();
  options.model_path = small_checkpoint(model);
  options.state_type = state;
  return options;
}

// The same question six times, and a second turn after each answer.
void expect_cold_answers(CachedEngine& cached, const EngineOptions& plain, const char* what) {
  const auto prompt = cached.prompt(kPrompt, 1);
  const auto cold = solo(plain, prompt, kAnswer);
  const auto next = joined(joined(prompt, cold), cached.prompt(9, 2));
  const auto cold_next = solo(plain, next, kAnswer);
  for (int time = 0; time < tests::rounds(6); ++time) {
    const Finished first = cached.ask(prompt, kAnswer);
    EXPECT_EQ(first.output, cold) << what << ", time " << time;
    EXPECT_EQ(first.reused_tokens, time == 0 ? 0 : kPrompt - 1) << what << ", time " << time;
    EXPECT_GT(first.counters.drafts, 0) << what;
    const Finished second = cached.ask(next, kAnswer);
    EXPECT_EQ(second.output, cold_next) << what << ", second turn, time " << time;
    EXPECT_GE(second.reused_tokens, kPrompt + kAnswer - 1) << what << ", time " << time;
  }
  cached.expect_nothing_held();
}

TEST(C01, SixAnswersAndTheirSecondTurnsAreColdOnes) {
  for (const char* model : kModelKinds) {
    for (const DType state : {DType::f32, DType::bf16}) {
      if (tests::kSanitized && (model == kModelKinds[0]) != (state == DType::f32)) continue;
      const EngineOptions plain = options_of(model, state);
      for (const NamedScript& script : drafter_doubles()) {
        EngineOptions options = plain;
        options.window_max = 8;
        CachedEngine cached(options, 32);
        const auto prompt = cached.prompt(kPrompt, 1);
        const auto turn = joined(joined(prompt, solo(plain, prompt, kAnswer)), cached.prompt(9, 2));
        const auto text = joined(turn, solo(plain, turn, kAnswer));
        cached.engine->use_drafter(std::make_unique<ScriptedDrafter>(
            std::vector<std::vector<TokenId>>{text}, 7, script.script));
        expect_cold_answers(cached, plain, script.name);
      }
    }
  }
}

// The drafter's own keys and values lie in the pages that the cache shares.
TEST(C01, SoAreThoseWithTheModelsOwnDraftHead) {
  const TestCheckpoint with_head(kModelKinds[0]);
  add_draft_head(with_head);
  EngineOptions plain = options_of(kModelKinds[0], DType::f32);
  plain.model_path = with_head.path();
  EngineOptions options = plain;
  options.speculation.algorithm = SpeculativeAlgorithm::mtp;
  CachedEngine cached(options, 32);
  expect_cold_answers(cached, plain, "draft head");
}

TEST(C01, SoAreThoseWithABlockDrafter) {
  for (const DrafterKind& kind : {kDFlash2, kDSparkGated}) {
    const EngineOptions plain = options_of(kModelKinds[0], DType::f32);
    EngineOptions options = plain;
    set_drafter(options, kind);
    CachedEngine cached(options, 32);
    expect_cold_answers(cached, plain, kind.name);
  }
}

}  // namespace
}  // namespace replayssm
