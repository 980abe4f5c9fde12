// Tool calls inside free text: nothing is held before one opens and after it closes.
#include <gtest/gtest.h>

#include "grammar/grammar.h"
#include "grammar/reasoning_gate.h"
#include "grammar_vocabulary.h"

namespace replayssm::grammar {
namespace {

using Json = nlohmann::ordered_json;
using Gate = ReasoningGate;

const Gate::Calls kCalls = {{"<tool_call>", std::nullopt}, {"</tool_call>", std::nullopt}};

Json weather() {
  return Json::parse(R"({"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer", "minimum": 1},
      "unit": {"$ref": "#/$defs/unit"}, "sky": {"anyOf": [{"$ref": "#/$defs/unit"}, {"const": "any"},
      {"type": "null"}]}, "wind": {"enum": ["N", "S", null]}, "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
      "required": ["city", "unit"], "additionalProperties": false,
      "$defs": {"unit": {"enum": ["C", "F"]}}})");
}

std::vector<CallableTool> tools() {
  return {{"get_weather", weather(), true}, {"free", Json(), false}};
}

Gate gate(std::string_view format, const std::vector<CallableTool>& callable = tools(),
          Gate::Start start = Gate::Start::in_answer) {
  auto grammar = Grammar::tool_call(format, callable, kCalls.close.text);
  if (!grammar.ok()) ADD_FAILURE() << grammar.error().message;
  return Gate(testing::constrained(*grammar), start, {}, kCalls);
}

// Bytes that the gate takes one by one, and whether the answer may end there; the mask says the
// same.
std::pair<std::size_t, bool> taken(Gate gate, std::string_view text) {
  std::vector<std::uint32_t> bits(testing::json_vocabulary()->mask_words());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    EXPECT_TRUE(gate.fill_mask(bits));
    const bool allowed = (bits[byte / 32u] >> (byte % 32u) & 1u) != 0;
    EXPECT_EQ(gate.accept(static_cast<TokenId>(byte)).ok(), allowed) << text.substr(0, i + 1);
    if (!allowed) return {i, false};
  }
  EXPECT_TRUE(gate.fill_mask(bits));
  const auto end = static_cast<std::uint32_t>(testing::end_token());
  const bool ends = (bits[end / 32] >> (end % 32) & 1u) != 0;
  EXPECT_EQ(ends, gate.finished());
  return {text.size(), ends};
}

// "@" stands in front of the byte that must be refused; without one all is taken and may end.
void check(const Gate& start, std::string text) {
  const std::size_t at = text.find('@');
  if (at != std::string::npos) text.erase(at, 1);
  const auto [bytes, ends] = taken(start, text);
  EXPECT_EQ(bytes, at == std::string::npos ? text.size() : at) << text;
  EXPECT_EQ(ends, at == std::string::npos) << text;
}

TEST(GrammarCall, HermesCallsHaveTheNamesAndArgumentsOfTheTools) {
  const Gate start = gate("hermes");
  check(start, "Just text, {even} [this and <tool_cal or </tool_call>.");
  const std::string call =
      R"(<tool_call>
{"name": "get_weather", "arguments": {"city": "Oslo", "unit": "C"}}
</tool_call>)";
  check(start, call);
  check(start, "Let me see. " + call + "\n" + call + " Well.");
  check(start, R"(<tool_call>
{"name": "free", "arguments": {"x": [1]}}
</tool_call>)");
  check(start, R"(<tool_call>{"name": "@other")");
  check(start, R"(<tool_call>{"name": "get_weather", "arguments": {"@days": 1}})");
  check(start, R"(<tool_call>{"name": "get_weather", "arguments": {"city": "x", "days": @0)");
  check(start, R"(<tool_call>{"name": "get_weather", "arguments": {"city": "x", "unit": "@K)");
  check(start, call + "a<tool_call>\n{\"name\": \"@nobody");
}

TEST(GrammarCall, QwenCallsHaveTheNamesAndArgumentsOfTheTools) {
  const Gate start = gate("qwen3_coder");
  check(start, "Just text.");
  check(start,
        "Let me see.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nNew\nYork </b> "
        "\xC3\xA9\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=unit>\nF\n"
        "</parameter>\n<parameter=note>\nnull\n</parameter>\n</function>\n</tool_call> Done.");
  check(start,
        "<tool_call>\n<function=free>\nwhat <you> like </parameter>\n</function>\n</tool_call>");
  check(start, "<tool_call>\n<function=@other>");
  check(start, "<tool_call>\n<function=get_weather>\n<@/function>");
  check(start, "<tool_call>\n<function=get_weather>\n<parameter=@days>");
  const std::string city =
      "<tool_call>\n<function=get_weather>\n<parameter=city>\nx\n</parameter>\n";
  check(start, city + "<parameter=days>\n@0");
  check(start, city + "<parameter=unit>\n@K");
  const std::string unit = city + "<parameter=unit>\nF\n</parameter>\n";
  for (const char* sky : {"C", "any", "null"}) {
    check(start,
          unit + "<parameter=sky>\n" + sky +
              "\n</parameter>\n<parameter=wind>\nnull\n</parameter>\n</function>\n</tool_call>");
  }
  check(start, unit + "<parameter=sky>\n@K");
  check(start, unit + "<parameter=wind>\nn@o");
  check(start, city + "<@/function>");  // unit is missing
}

TEST(GrammarCall, ACallCannotBeLeftOpen) {
  for (const char* format : {"hermes", "qwen3_coder"}) {
    const auto [bytes, ends] = taken(gate(format), "Well. <tool_call>\n");
    EXPECT_EQ(bytes, 18u);
    EXPECT_FALSE(ends);
  }
}

TEST(GrammarCall, AfterReasoningThereIsTextThenCalls) {
  const Gate start = gate("hermes", tools(), Gate::Start::in_reasoning);
  const auto [bytes, ends] = taken(start, "Hm <tool_call> {nothing");
  EXPECT_EQ(bytes, 23u);
  EXPECT_FALSE(ends) << "still reasoning";
  check(start, "Hm <tool_call>x</think>\n\nText <tool_call>\n@x");
}

// The same in pieces of several bytes, which cross the tags, and with tokens for them.
TEST(GrammarCall, TokensThatCrossATagAreHeldToWhatFollows) {
  const std::vector<std::string_view> texts = {"a", "l>{", "l>x", "<tool_cal",   "", "", "{\"", "x",
                                               "}", "\n",  "",    "<tool_call>{"};
  const TokenId end = 10;
  const auto vocabulary = std::make_shared<const TokenTrie>(texts, std::span(&end, 1));
  const auto grammar = Grammar::tool_call("hermes", tools(), "");
  ASSERT_TRUE(grammar.ok());
  const auto tokens = std::make_shared<ConstrainedTokens>(*grammar, vocabulary);
  const Gate::Calls calls = {{"<tool_call>", TokenId{4}}, {"</tool_call>", TokenId{5}}};
  Gate start(tokens, Gate::Start::in_answer, {}, calls);
  const auto allowed = [](const Gate& at, TokenId id) {
    std::vector<std::uint32_t> bits(1);
    EXPECT_TRUE(at.fill_mask(bits));
    Gate next = at;
    const bool taken = next.accept(id).ok();
    EXPECT_EQ(taken, (bits[0] >> id & 1u) != 0) << id;
    return taken;
  };
  EXPECT_TRUE(allowed(start, 4));
  EXPECT_TRUE(allowed(start, 5)) << "a tag that closes nothing is text";
  EXPECT_TRUE(allowed(start, 11));
  EXPECT_TRUE(allowed(start, end));
  ASSERT_TRUE(start.accept(3));
  EXPECT_TRUE(allowed(start, 1));
  EXPECT_FALSE(allowed(start, 2));
  Gate by_text = start;
  ASSERT_TRUE(by_text.accept(1));
  EXPECT_EQ(by_text.position(), "a{");
  EXPECT_FALSE(allowed(by_text, end));
  EXPECT_FALSE(allowed(by_text, 5));
  Gate there(tokens, Gate::Start::in_answer, {}, calls);
  ASSERT_TRUE(there.restore(start.position()).ok());
  EXPECT_TRUE(allowed(there, 1));
  EXPECT_FALSE(allowed(there, 2));
}

TEST(GrammarCall, TheClosingTokenComesWhenTheCallIsWhole) {
  // The token without text in front of the end token stands for the tag.
  const TokenId close = testing::end_token() - 1;
  const auto grammar = Grammar::tool_call("qwen3_coder", {{{"f", Json(), true}}}, "");
  ASSERT_TRUE(grammar.ok());
  Gate at(testing::constrained(*grammar), Gate::Start::in_answer, {},
          Gate::Calls{{"<tool_call>", std::nullopt}, {"</tool_call>", close}});
  const auto take = [&](std::string_view text) {
    for (const unsigned char byte : text) ASSERT_TRUE(at.accept(static_cast<TokenId>(byte)));
  };
  take("<tool_call>\n<function=f>\n</function>");
  EXPECT_FALSE(Gate(at).accept(close));
  take("\n");
  EXPECT_FALSE(at.accept(testing::end_token()));
  ASSERT_TRUE(at.accept(close));
  EXPECT_TRUE(at.finished());
}

TEST(GrammarCall, WhatCannotBeHeldIsNamed) {
  const auto refused = [](std::string_view format, const char* property) {
    Json parameters = {{"type", "object"}, {"properties", {{"p", Json::parse(property)}}}};
    const auto grammar = Grammar::tool_call(format, {{{"f", parameters, true}}}, "");
    return grammar.ok() ? std::string() : grammar.error().message;
  };
  EXPECT_EQ(refused("hermes", R"({"type": "string", "maxLength": 3})"), "");
  const std::string text = refused("qwen3_coder", R"({"type": "string", "maxLength": 3})");
  EXPECT_NE(text.find("/tools/0/properties/p: keyword \"maxLength\""), std::string::npos) << text;
  EXPECT_NE(
      refused("qwen3_coder", R"({"anyOf": [{"type": "string", "pattern": "a"}, {"type": "null"}]})")
          .find("properties/p/anyOf/0: keyword \"pattern\""),
      std::string::npos);
  EXPECT_NE(refused("qwen3_coder", R"({"type": ["string", "integer"]})"), "");
  EXPECT_NE(refused("qwen3_coder", R"({"enum": ["a", 1]})"), "");
  EXPECT_NE(refused("qwen3_coder", R"({"anyOf": [{"enum": ["a"]}, {"type": "integer"}]})"), "");
  EXPECT_NE(refused("qwen3_coder", R"({"type": "integer", "multipleOf": 3})").find("multipleOf"),
            std::string::npos);
  EXPECT_NE(refused("hermes", R"({"type": "integer", "multipleOf": 3})").find("multipleOf"),
            std::string::npos);
  EXPECT_NE(refused("qwen3_coder", R"({"anyOf": [{"type": "string"}, {"$ref": "#/properties/p"}]})")
                .find("nested too deeply"),
            std::string::npos);
  EXPECT_NE(refused("other", "{}"), "");
}

// Twelve ways to each choice below: as many paths as no one counts, nine schemas.
TEST(GrammarCall, AChoiceThatManyReferToIsLookedAtOnce) {
  Json definitions = {{"c8", {{"enum", {"N", "S"}}}}};
  for (int i = 0; i < 8; ++i) {
    const Json below = {{"$ref", fmt::format("#/$defs/c{}", i + 1)}};
    definitions[fmt::format("c{}", i)] = {{"anyOf", Json(12, below)}};
  }
  const Json parameters = {{"type", "object"},
                           {"properties", {{"v", {{"$ref", "#/$defs/c0"}}}}},
                           {"required", {"v"}},
                           {"$defs", definitions}};
  const std::string call =
      "<tool_call>\n<function=f>\n<parameter=v>\nS\n</parameter>\n</function>\n</tool_call>";
  EXPECT_EQ(taken(gate("qwen3_coder", {{"f", parameters, true}}), call),
            std::pair(call.size(), true));
}

}  // namespace
}  // namespace replayssm::grammar
