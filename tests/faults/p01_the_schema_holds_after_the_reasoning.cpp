// P01 (lmstudio-ai/lmstudio-bug-tracker#1773; ollama/ollama#14850, #10929): with a thinking model
// the schema was put on the reasoning, or on nothing at all.
#include <gtest/gtest.h>

#include "grammar/reasoning_gate.h"
#include "grammar_vocabulary.h"
#include "text/reasoning_parser.h"

namespace replayssm::grammar {
namespace {

TEST(P01, ReasoningIsFreeAndTheAnswerFitsTheSchema) {
  const auto tokens = testing::constrained(
      R"({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})");
  const auto vocabulary = testing::json_vocabulary();
  std::mt19937 random(4);
  for (int round = 0; round < 20; ++round) {
    ReasoningGate gate(tokens, ReasoningGate::Start::in_reasoning, {"</think>", std::nullopt});
    std::vector<std::uint32_t> bits(vocabulary->mask_words());
    std::string text;
    const auto take = [&](TokenId id) {
      ASSERT_TRUE(gate.fill_mask(bits));
      const auto at = static_cast<std::uint32_t>(id);
      ASSERT_TRUE((bits[at / 32] >> (at % 32) & 1u) != 0) << text;
      ASSERT_TRUE(gate.accept(id)) << text;
      text += vocabulary->bytes_of(id);
    };
    for (const char c : std::string("No JSON here: {n}, [1, </thin\n</think>\n\n")) {
      ASSERT_EQ(gate.finished(), false);
      take(TokenId{c});
    }
    const std::string answer = testing::sample(gate, random, 30, 1000);
    ASSERT_FALSE(answer.empty());
    ReasoningParser parser(ReasoningParser::Start::in_reasoning);
    const ReasoningDelta parts = parser.push(text + answer);
    EXPECT_EQ(parts.reasoning, "No JSON here: {n}, [1, </thin");
    const auto document = nlohmann::json::parse(parts.content, nullptr, false);
    ASSERT_TRUE(document.is_object()) << parts.content;
    EXPECT_TRUE(document.size() == 1 && document["n"].is_number_integer()) << parts.content;
  }
}

}  // namespace
}  // namespace replayssm::grammar
