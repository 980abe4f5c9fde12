// Fault C03 (jundot/omlx#2496): what is kept of a conversation leaves out the state of the KDA
// layers, and the second turn crashes or is garbage. What is kept here is a paused sequence.
#include <gtest/gtest.h>

#include "small_engine.h"

namespace replayssm {
namespace {

constexpr int kTurn = 20;  // tokens of an answer

std::vector<TokenId> run(Engine& engine, Sequence& sequence) {
  while (static_cast<int>(sequence.sampling.outputs()) < kTurn) {
    const StepRow row = Engine::next_row(sequence, 64);
    EXPECT_TRUE(engine.prepare(row).ok());
    EXPECT_TRUE(engine.step({&row, 1}).ok());
  }
  return {sequence.tokens.end() - kTurn, sequence.tokens.end()};
}

TEST(C03, TheSecondTurnAfterAPauseIsThatOfAColdSequence) {
  EngineOptions options = small_options();
  options.model_path = small_checkpoint("kda_hybrid_bfloat16_tied");
  for (const Recurrence recurrence : {Recurrence::replay, Recurrence::packed}) {
    options.recurrence = recurrence;
    const auto first = make_engine(options);
    // Pauses with few and many records that are not folded yet, and before the first fold.
    for (const int prompt_tokens : {3, 12, 29, 45}) {
      Sequence sequence = first->admit(random_prompt(*first, prompt_tokens, 5), greedy()).value();
      run(*first, sequence);
      const auto archive = first->pause(sequence).value();
      auto conversation = sequence.tokens;
      const auto question = random_prompt(*first, 9, 6);
      conversation.insert(conversation.end(), question.begin(), question.end());

      const auto second = make_engine(options);
      Sequence warm = second->resume(archive).value();
      ASSERT_TRUE(second->extend(warm, conversation, greedy()).ok());
      EXPECT_EQ(run(*second, warm), solo(options, conversation, kTurn)) << prompt_tokens;
    }
  }
}

TEST(C03, AnArchiveWithoutAPartIsRefused) {
  EngineOptions options = small_options();
  options.model_path = small_checkpoint("kda_hybrid_bfloat16_tied");
  const auto engine = make_engine(options);
  Sequence sequence = engine->admit(random_prompt(*engine, 30, 5), greedy()).value();
  run(*engine, sequence);
  const auto archive = engine->pause(sequence).value();
  sequence = Sequence{};
  const auto state = static_cast<std::size_t>(engine->memory().layout().state_bytes());
  ASSERT_GT(archive.size(), 3 * state) << "the states of three KDA layers are in it";
  auto without = archive;  // one state less, in the middle
  without.erase(without.begin() + static_cast<std::ptrdiff_t>(archive.size() / 2 - state / 2),
                without.begin() + static_cast<std::ptrdiff_t>(archive.size() / 2 + state / 2));
  EXPECT_FALSE(engine->resume(without).ok());
  expect_all_free(*engine);
}

}  // namespace
}  // namespace replayssm
