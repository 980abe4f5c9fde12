#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "replay/geometry.h"
#include "spec/ngram_drafter.h"
#include "spec/speculation.h"

namespace replayssm {
namespace {

using Tokens = std::vector<TokenId>;

void learn(NgramTrie& trie, const Tokens& text) {
  for (std::size_t i = 1; i <= text.size(); ++i) trie.add_last(std::span(text).first(i));
}

TEST(NgramTrie, TheLongestKnownEndDecidesAndThenTheNewestText) {
  NgramTrie trie(6, 1000);
  learn(trie, {1, 2, 3, 4});
  learn(trie, {9, 2, 3, 5});
  EXPECT_EQ(trie.next(Tokens{1, 2, 3}, 1), 4) << "three tokens are known";
  EXPECT_EQ(trie.next(Tokens{7, 2, 3}, 1), 5) << "two are, and 5 came last";
  EXPECT_EQ(trie.next(Tokens{7, 8}, 1), std::nullopt);
  EXPECT_EQ(trie.next(Tokens{7, 3}, 2), std::nullopt) << "one token is less than asked for";
  EXPECT_EQ(trie.next(Tokens{7, 3}, 1), 5);
  trie.clear();
  EXPECT_EQ(trie.next(Tokens{1, 2, 3}, 1), std::nullopt);
}

TEST(NgramTrie, StaysWithinItsCapacityAndForgetsTheOldest) {
  constexpr std::size_t kCapacity = 400;
  NgramTrie trie(4, kCapacity);
  learn(trie, {-1, -2, -3, -4});
  for (TokenId i = 0; i < 5000; ++i) {
    learn(trie, {i, i + 1, i + 2, i + 3});
    ASSERT_LE(trie.nodes(), kCapacity);
  }
  EXPECT_EQ(trie.next(Tokens{4999, 5000, 5001}, 1), 5002);
  EXPECT_EQ(trie.next(Tokens{-2, -3}, 1), std::nullopt);
}

TEST(NgramDrafter, ContinuesWhatRepeats) {
  NgramDrafter drafter(5);
  Tokens text{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3};
  const DraftedSequence sequence{text, {}, nullptr};
  const CommittedTokens all{sequence, 0, static_cast<int>(text.size()) - 1, nullptr};
  ASSERT_TRUE(drafter.observe({&all, 1}).ok());
  const auto drafts = [&](int most) {
    DraftRequest request;
    request.sequence = sequence;
    request.most = most;
    EXPECT_TRUE(drafter.propose({&request, 1}).ok());
    Tokens tokens;
    for (const Draft& draft : request.drafts) tokens.push_back(draft.token);
    return tokens;
  };
  EXPECT_EQ(drafts(9), (Tokens{4, 5, 6, 7, 8}));
  EXPECT_EQ(drafts(2), (Tokens{4, 5}));
  text.back() = 77;
  EXPECT_EQ(drafts(9), Tokens{});
}

SpeculationOptions asked(SpeculativeAlgorithm algorithm, int draft_tokens = 0, int steps = 0) {
  SpeculationOptions options;
  options.algorithm = algorithm;
  options.draft_tokens = draft_tokens;
  options.steps = steps;
  return options;
}

TEST(Speculation, WindowsHaveTheAlgorithmsDefaultAndAreCutWithANote) {
  const auto window = [](const SpeculationOptions& options, int block, bool cut, int drafts = 0) {
    const auto plan = plan_speculation(options, block, drafts);
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_EQ(plan->note.empty(), !cut) << plan->note;
    return plan->window_max;
  };
  EXPECT_EQ(window({}, 16, false), 1);
  EXPECT_EQ(window(asked(SpeculativeAlgorithm::ngram), 16, false), 12);
  EXPECT_EQ(window(asked(SpeculativeAlgorithm::ngram), 8, true), 8);
  EXPECT_EQ(window(asked(SpeculativeAlgorithm::ngram, 20), 32, true), 16);
  EXPECT_EQ(window(asked(SpeculativeAlgorithm::ngram, 5), 16, false), 5);
  EXPECT_EQ(window(asked(SpeculativeAlgorithm::mtp), 16, false), 4);
  EXPECT_EQ(window(asked(SpeculativeAlgorithm::mtp, 6), 16, false), 6);
  EXPECT_EQ(window(asked(SpeculativeAlgorithm::mtp, 0, 5), 16, false), 6);
  EXPECT_EQ(window(asked(SpeculativeAlgorithm::mtp, 6, 5), 16, false), 6);
  EXPECT_EQ(window(asked(SpeculativeAlgorithm::dflash), 16, false, 15), 16);
  EXPECT_EQ(window(asked(SpeculativeAlgorithm::dflash, 5), 16, false, 15), 5);
  EXPECT_EQ(window(asked(SpeculativeAlgorithm::dspark), 16, true, 16), 16);
  EXPECT_EQ(window(asked(SpeculativeAlgorithm::dspark), 8, false, 7), 8);
  EXPECT_EQ(window(asked(SpeculativeAlgorithm::dflash), 8, true, 15), 8);
}

TEST(Speculation, RefusalsNameTheFlagTheValueAndWhatFits) {
  const auto message = [](const SpeculationOptions& options, int drafts = 0) {
    const auto plan = plan_speculation(options, 16, drafts);
    return plan.ok() ? "" : plan.error().message;
  };
  EXPECT_EQ(message(asked(SpeculativeAlgorithm::mtp, 4, 5)),
            "--speculative-num-draft-tokens: 4 is not accepted; expected 6, one more than "
            "--speculative-num-steps 5");
  EXPECT_EQ(message(asked(SpeculativeAlgorithm::ngram, 0, 5)),
            "--speculative-num-steps: 5 is not accepted; expected nothing with NGRAM");
  EXPECT_EQ(message(asked(SpeculativeAlgorithm::ngram, 1)),
            "--speculative-num-draft-tokens: 1 is not accepted; expected at least 2: the newest "
            "token and a draft");
  SpeculationOptions with_path = asked(SpeculativeAlgorithm::mtp);
  with_path.draft_model_path = "somewhere";
  EXPECT_EQ(message(with_path),
            "--speculative-draft-model-path: somewhere is not accepted; expected nothing with "
            "EAGLE, the model's own draft head");
  EXPECT_EQ(message(asked(SpeculativeAlgorithm::dflash, 9), 7),
            "--speculative-num-draft-tokens: 9 is not accepted; expected 2 to 8: the drafter makes "
            "7 drafts");
  EXPECT_EQ(message(asked(SpeculativeAlgorithm::dspark, 0, 3), 7),
            "--speculative-num-steps: 3 is not accepted; expected nothing with DSPARK");
  SpeculationOptions confident = asked(SpeculativeAlgorithm::ngram);
  confident.confidence_threshold = 0.5;
  EXPECT_EQ(message(confident),
            "--speculative-confidence-threshold: 0.5 is not accepted; expected nothing with NGRAM");
  SpeculationOptions with_rates = asked(SpeculativeAlgorithm::mtp);
  with_rates.step_rates = "rates.json";
  EXPECT_EQ(message(with_rates),
            "--speculative-step-rates: rates.json is not accepted; expected nothing with EAGLE");
  EXPECT_EQ(algorithm_named("DFLASH").value(), SpeculativeAlgorithm::dflash);
  EXPECT_EQ(algorithm_named("DSPARK").value(), SpeculativeAlgorithm::dspark);
  for (const char* name : {"EAGLE3", "ngram"}) {
    const auto algorithm = algorithm_named(name);
    ASSERT_FALSE(algorithm.ok()) << name;
    EXPECT_NE(algorithm.error().message.find(name), std::string::npos);
    EXPECT_NE(algorithm.error().message.find("NGRAM; EAGLE"), std::string::npos);
  }
  for (const char* name : {"EAGLE", "NEXTN", "MTP"}) {
    EXPECT_EQ(algorithm_named(name).value(), SpeculativeAlgorithm::mtp);
  }
}

}  // namespace
}  // namespace replayssm
