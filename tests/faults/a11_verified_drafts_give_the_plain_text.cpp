// Faults A11 (Avarok-Cybersecurity/atlas#604), E01 (vllm-project/vllm#39273), E02
// (vllm-project/vllm#36872, #47087, #55357) and E03 (vllm-project/vllm-ascend#16979): verifying
// drafts changes greedy text, or a drafter that knows the text is not believed. There is no inexact
// mode to fall into: the text is that of one token a step, and a perfect drafter is always
// believed.
#include <gtest/gtest.h>

#include "small_engine.h"

namespace replayssm {
namespace {

constexpr int kWindow = 8;
constexpr int kOutputs = tests::rounds(512);

EngineOptions options_for(int window) {
  EngineOptions options = small_options();
  options.window_max = window;
  options.context_length = 640;
  return options;
}

TokenId best(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

struct Text {
  std::vector<TokenId> tokens;
  int rounds = 0;
};

// Greedy text with windows of the anchor and drafts of which the first `right(round)` are those of
// `known`, the others wrong.
template <class Right>
Text speculate(const std::vector<TokenId>& prompt, const std::vector<TokenId>& known,
               Right&& right) {
  const auto engine = make_engine(options_for(kWindow));
  Runner& runner = engine->runner();
  Sequence sequence = engine->admit(prompt, greedy()).value();
  while (sequence.waiting() > 0) {
    const StepRow row = Engine::next_row(sequence, 64);
    EXPECT_TRUE(engine->prepare(row).ok());
    const auto logits = runner.evaluate({&row, 1});
    const TokenId next = row.logits > 0 ? best(runner.logits_row(*logits, row.logits - 1)) : 0;
    EXPECT_TRUE(runner.commit().ok());
    if (row.logits > 0) {
      sequence.tokens.push_back(next);
      break;
    }
  }
  Text text{{sequence.tokens.back()}, 0};
  while (static_cast<int>(text.tokens.size()) < kOutputs) {
    const std::size_t anchor = text.tokens.size() - 1;
    const std::size_t decided = sequence.tokens.size();
    const int believed = right(text.rounds++);
    for (int d = 0; d < kWindow - 1; ++d) {
      const std::size_t at = anchor + 1 + static_cast<std::size_t>(d);
      const TokenId truth = at < known.size() ? known[at] : 0;
      sequence.tokens.push_back(d < believed ? truth : (truth + 1) % 7);
    }
    const StepRow row{&sequence, kWindow, Phase::verify, kWindow};
    EXPECT_TRUE(engine->prepare(row).ok());
    const auto logits = runner.evaluate({&row, 1});
    if (!logits.ok()) {
      ADD_FAILURE() << logits.error().message;
      return text;
    }
    int accepted = 1;
    std::vector<TokenId> next{best(runner.logits_row(*logits, 0))};
    while (accepted < kWindow &&
           sequence.tokens[decided - 1 + static_cast<std::size_t>(accepted)] == next.back()) {
      next.push_back(best(runner.logits_row(*logits, accepted++)));
    }
    EXPECT_TRUE(runner.commit({&accepted, 1}).ok());
    sequence.tokens.resize(decided);
    sequence.tokens.insert(sequence.tokens.end(), next.begin(), next.end());
    text.tokens.insert(text.tokens.end(), next.begin(), next.end());
  }
  text.tokens.resize(kOutputs);
  return text;
}

TEST(A11, EveryDrafterGivesThePlainTextAndThePerfectOneIsAlwaysBelieved) {
  std::vector<TokenId> prompt;
  for (int i = 0; i < 40; ++i) prompt.push_back(i % 9 + 11);  // repeats, as E01 wants them
  const auto plain = solo(options_for(1), prompt, kOutputs);
  ASSERT_EQ(plain.size(), static_cast<std::size_t>(kOutputs));

  const Text perfect = speculate(prompt, plain, [](int) { return kWindow - 1; });
  EXPECT_EQ(perfect.tokens, plain);
  EXPECT_EQ(perfect.rounds, (kOutputs - 1 + kWindow - 1) / kWindow) << "all drafts of every round";
  const Text wrong = speculate(prompt, plain, [](int) { return 0; });
  EXPECT_EQ(wrong.tokens, plain);
  const Text mixed = speculate(prompt, plain, [](int round) { return round * 5 % kWindow; });
  EXPECT_EQ(mixed.tokens, plain);
}

}  // namespace
}  // namespace replayssm
