#include <gtest/gtest.h>

#include <random>

#include "grammar/reasoning_gate.h"
#include "grammar_vocabulary.h"

namespace replayssm::grammar {
namespace {

const std::vector<std::string>& schemas() {
  static const std::vector<std::string> list = {
      "{}",
      R"({"type": "object"})",
      R"({"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "array",
          "items": {"type": "number"}, "maxItems": 4}, "ok": {"type": "boolean"}},
          "required": ["name", "ok"]})",
      R"({"type": "string", "maxLength": 6})",
      R"({"type": "string", "minLength": 3})",
      R"({"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 4}})",
      R"({"anyOf": [{"type": "string", "maxLength": 2}, {"type": "string", "maxLength": 5}]})",
      R"({"type": "string", "pattern": "^[a-f ]*(\"|\\\\)?é?$"})",
      R"({"properties": {"name": {}}, "additionalProperties": {"type": ["null", "integer"]}})",
      R"({"type": "object", "properties": {"date": {"format": "date-time"}}, "required": ["date"]})"};
  return list;
}

// What fill_mask says about each token is what accept() does with it.
TEST(GrammarMask, AllowsExactlyTheTokensThatAreAccepted) {
  std::mt19937 random(3);
  const auto vocabulary = testing::json_vocabulary();
  std::vector<std::uint32_t> bits(vocabulary->mask_words());
  for (const std::string& schema : schemas()) {
    const auto tokens = testing::constrained(schema);
    for (int walk = 0; walk < 3; ++walk) {
      GrammarState state(tokens);
      for (int step = 0; step < 25 && !state.ended(); ++step) {
        EXPECT_TRUE(state.fill_mask(bits));
        const auto ids = testing::allowed_tokens(bits);
        ASSERT_FALSE(ids.empty()) << schema << "\n" << state.position();
        for (std::size_t id = 0; id < vocabulary->vocabulary_size(); ++id) {
          const bool allowed = (bits[id / 32] >> (id % 32) & 1u) != 0;
          GrammarState fork = state;
          ASSERT_EQ(fork.accept(static_cast<TokenId>(id)).ok(), allowed)
              << schema << "\n"
              << state.position() << " token " << id;
        }
        ASSERT_TRUE(state.accept(ids[random() % ids.size()]));
      }
    }
  }
}

TEST(GrammarMask, TheInsideOfAStringAllowsPlainTokensWhateverTheGrammar) {
  const auto vocabulary = testing::json_vocabulary();
  const auto tokens = testing::constrained(R"({"type": "object"})");
  GrammarState state(tokens);
  ASSERT_TRUE(state.accept("{\"k\": \"abc"));
  std::vector<std::uint32_t> bits(vocabulary->mask_words());
  EXPECT_TRUE(state.fill_mask(bits));
  for (std::size_t word = 0; word < bits.size(); ++word) {
    EXPECT_EQ(bits[word] & vocabulary->plain_tokens()[word], vocabulary->plain_tokens()[word]);
  }
  // Half a character is no place for plain tokens.
  ASSERT_TRUE(state.accept("\xC3"));
  EXPECT_TRUE(state.fill_mask(bits));
  EXPECT_EQ(testing::allowed_tokens(bits).size() < 200, true);
  EXPECT_FALSE(state.accept("a"));
}

TEST(GrammarMask, ARefusedTokenChangesNothing) {
  GrammarState state(testing::constrained(R"({"const": "ab"})"));
  EXPECT_FALSE(state.accept("\"ax"));
  EXPECT_FALSE(state.accept(testing::end_token()));
  EXPECT_FALSE(state.accept(TokenId{-1}));
  EXPECT_FALSE(state.accept(TokenId{1'000'000}));
  EXPECT_EQ(state.position(), "");
  EXPECT_TRUE(state.accept("\"ab\""));
  EXPECT_TRUE(state.complete());
  EXPECT_TRUE(state.accept(testing::end_token()));
  EXPECT_TRUE(state.ended());
  EXPECT_FALSE(state.accept(testing::end_token()));
  std::vector<std::uint32_t> bits(testing::json_vocabulary()->mask_words(), ~0u);
  EXPECT_TRUE(state.fill_mask(bits));
  EXPECT_TRUE(testing::allowed_tokens(bits).empty());
}

TEST(GrammarMask, AMaskMayBeLongerThanTheVocabulary) {
  GrammarState state(testing::constrained("{}"));
  std::vector<std::uint32_t> bits(testing::json_vocabulary()->mask_words() + 3, ~0u);
  EXPECT_TRUE(state.fill_mask(bits));
  for (const TokenId id : testing::allowed_tokens(bits)) {
    EXPECT_LT(static_cast<std::size_t>(id), testing::json_vocabulary()->vocabulary_size());
  }
  EXPECT_TRUE(state.fill_mask(bits));  // from memory
  EXPECT_EQ(bits.back(), 0u);
}

TEST(GrammarMask, ForksGoTheirOwnWay) {
  GrammarState one(testing::constrained(R"({"enum": ["ab", "ac"]})"));
  ASSERT_TRUE(one.accept("\"a"));
  GrammarState two = one;
  ASSERT_TRUE(one.accept("b\""));
  ASSERT_TRUE(two.accept("c\""));
  EXPECT_EQ(one.position(), "\"ab\"");
  EXPECT_EQ(two.position(), "\"ac\"");
}

TEST(GrammarMask, APositionGoesOnElsewhere) {
  const std::string schema = R"({"type": "array", "items": {"type": "string", "maxLength": 3}})";
  GrammarState here(testing::constrained(schema));
  ASSERT_TRUE(here.accept("[\"ab"));
  auto there = GrammarState::at(testing::constrained(schema), here.position());
  ASSERT_TRUE(there.ok());
  EXPECT_FALSE(there->accept("cd"));
  EXPECT_TRUE(there->accept("c\"]"));
  EXPECT_TRUE(there->complete());
  EXPECT_FALSE(GrammarState::at(testing::constrained(schema), "{").ok());
}

// More states than are remembered: the automaton is forgotten in between, and every state finds its
// place again.
TEST(GrammarMask, ForgettingTheAutomatonChangesNothing) {
  const auto tokens = testing::constrained(R"({"type": "string", "maxLength": 100000})");
  GrammarState waiting(tokens);
  ASSERT_TRUE(waiting.accept("\"waiting"));
  GrammarState running(tokens);
  ASSERT_TRUE(running.accept("\""));
  const std::string piece(1000, 'x');
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(running.accept(piece)) << i;
  EXPECT_FALSE(running.accept("x"));
  EXPECT_TRUE(running.accept("\""));
  EXPECT_TRUE(waiting.accept(" still\""));
  EXPECT_TRUE(waiting.complete());
}

TEST(ReasoningGate, AllowsEverythingButTheEndWhileTheModelReasons) {
  const auto vocabulary = testing::json_vocabulary();
  ReasoningGate gate(testing::constrained(R"({"const": 1})"), ReasoningGate::Start::in_reasoning,
                     {"</think>", std::nullopt});
  std::vector<std::uint32_t> bits(vocabulary->mask_words());
  EXPECT_TRUE(gate.fill_mask(bits));
  EXPECT_EQ(testing::allowed_tokens(bits).size(), vocabulary->vocabulary_size() - 1);
  EXPECT_FALSE(gate.accept(testing::end_token()));
  for (const char c : std::string("so {<</thi </think")) {
    ASSERT_TRUE(gate.accept(static_cast<TokenId>(static_cast<unsigned char>(c))));
  }
  EXPECT_TRUE(gate.in_reasoning());
  ASSERT_TRUE(gate.accept(TokenId{'>'}));
  EXPECT_FALSE(gate.in_reasoning());
  EXPECT_TRUE(gate.fill_mask(bits));
  // White space or the constant.
  EXPECT_TRUE((bits['1' / 32] >> ('1' % 32) & 1u) != 0);
  EXPECT_TRUE((bits['\n' / 32] >> ('\n' % 32) & 1u) != 0);
  EXPECT_FALSE((bits['2' / 32] >> ('2' % 32) & 1u) != 0);
  ASSERT_TRUE(gate.accept(TokenId{'1'}));
  EXPECT_TRUE(gate.finished());
  EXPECT_TRUE(gate.accept(testing::end_token()));
}

TEST(ReasoningGate, ATokenThatClosesAndGoesOnMustFitTheGrammar) {
  const std::vector<std::string_view> texts = {"a", ">\n",  ">x", "nk>\n{", "</think>", "</think>[",
                                               "<", "/thi", "nk", ">",      "{",        ""};
  const TokenId end = 11;
  const auto trie = std::make_shared<const TokenTrie>(texts, std::span(&end, 1));
  const auto tokens = std::make_shared<ConstrainedTokens>(Grammar::json_object(), trie);
  ReasoningGate gate(tokens, ReasoningGate::Start::in_reasoning, {"</think>", TokenId{4}});
  std::vector<std::uint32_t> bits(1);
  const auto allowed = [&] {
    EXPECT_TRUE(gate.fill_mask(bits));
    return testing::allowed_tokens(bits);
  };
  EXPECT_EQ(allowed(), (std::vector<TokenId>{0, 1, 2, 3, 4, 6, 7, 8, 9, 10}));
  ASSERT_TRUE(gate.accept(6));
  ASSERT_TRUE(gate.accept(7));
  EXPECT_EQ(allowed(), (std::vector<TokenId>{0, 1, 2, 3, 4, 6, 7, 8, 9, 10}));
  ReasoningGate other = gate;
  ASSERT_TRUE(gate.accept(8));
  EXPECT_EQ(allowed(), (std::vector<TokenId>{0, 1, 3, 4, 6, 7, 8, 9, 10}));
  EXPECT_FALSE(gate.accept(2));
  ASSERT_TRUE(gate.accept(1));
  EXPECT_EQ(gate.answer().position(), "\n");
  ASSERT_TRUE(other.accept(3));
  EXPECT_EQ(other.answer().position(), "\n{");
}

TEST(ReasoningGate, APositionGoesOnElsewhere) {
  const auto tokens = testing::constrained("{}");
  const ReasoningGate::Tag tag{"</think>", std::nullopt};
  ReasoningGate gate(tokens, ReasoningGate::Start::in_reasoning, tag);
  for (const char c : std::string("x</thi")) ASSERT_TRUE(gate.accept(TokenId{c}));
  ReasoningGate there(tokens, ReasoningGate::Start::in_reasoning, tag);
  ASSERT_TRUE(there.restore(gate.position()).ok());
  for (const char c : std::string("nk>[1")) ASSERT_TRUE(there.accept(TokenId{c}));
  EXPECT_EQ(there.position(), "a[1");
  ReasoningGate third(tokens, ReasoningGate::Start::in_reasoning, tag);
  ASSERT_TRUE(third.restore(there.position()).ok());
  EXPECT_FALSE(third.accept(TokenId{'}'}));
  EXPECT_TRUE(third.accept(TokenId{']'}));
  EXPECT_FALSE(third.restore("").ok());
  EXPECT_FALSE(third.restore("a]").ok());
  EXPECT_FALSE(third.restore("rx").ok());
}

TEST(ReasoningGate, WithoutReasoningTheGrammarHoldsFromTheStart) {
  ReasoningGate gate(testing::constrained("{}"), ReasoningGate::Start::in_answer,
                     {"</think>", std::nullopt});
  EXPECT_FALSE(gate.accept(TokenId{'x'}));
  EXPECT_TRUE(gate.accept(TokenId{'1'}));
}

}  // namespace
}  // namespace replayssm::grammar
