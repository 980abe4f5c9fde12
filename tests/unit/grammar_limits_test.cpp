// Schemas that ask for much: they work, are refused, or end the request that sent them.
#include <gtest/gtest.h>

#include "grammar/automaton.h"
#include "grammar/schema_compiler.h"
#include "grammar/schema_merge.h"
#include "grammar_vocabulary.h"

namespace replayssm::grammar {
namespace {

bool takes(const std::shared_ptr<ConstrainedTokens>& tokens, std::string_view text) {
  GrammarState state(tokens);
  return state.accept(text) && state.finished();
}

std::string in_quotes(std::string_view text) { return fmt::format("\"{}\"", text); }

std::string of_pattern(std::string_view pattern) { return Json{{"pattern", pattern}}.dump(); }

// States that each need their own places: which of the last 300 characters may begin a round.
const std::string kCostly = of_pattern("^(.*[a-m].{300})*$");

// Fills masks and takes "a" until something fails; the error's message, or nothing.
std::string error_of(GrammarState& state, int steps) {
  std::vector<std::uint32_t> bits(testing::json_vocabulary()->mask_words());
  for (int i = 0; i < steps; ++i) {
    if (const Status filled = state.fill_mask(bits); !filled.ok()) return filled.error().message;
    if (const Status taken = state.accept("a"); !taken.ok()) {
      return taken.error().message;
    }
  }
  return "";
}

TEST(GrammarLimits, RepetitionsOfWhatMayBeEmptyAreCheapInsideEachOther) {
  for (const std::string pattern :
       {"^((a{0,300}){0,300}){0,300}$", "^((((a{0,1000}){0,1000}){0,1000}){0,1000}){0,1000}$",
        "^(((a?b?){20,1000}|c*){9,1000}){9,1000}$"}) {
    GrammarState state(testing::constrained(of_pattern(pattern)));
    ASSERT_TRUE(state.accept("\""));
    EXPECT_EQ(error_of(state, 50), "") << pattern;
    EXPECT_TRUE(state.accept("\"")) << pattern;
    EXPECT_TRUE(state.complete()) << pattern;
  }
}

TEST(GrammarLimits, ACostlyPatternEndsItsRequestAndNoOther) {
  const auto tokens = testing::constrained(kCostly);
  GrammarState state(tokens);
  ASSERT_TRUE(state.accept("\""));
  const std::string error = error_of(state, 2000);
  EXPECT_NE(error.find("schema: it is too costly"), std::string::npos) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos);
  GrammarState other(tokens);
  EXPECT_TRUE(other.accept("\"abc"));
}

TEST(GrammarLimits, WhatIsNotPaidForIsNotRemembered) {
  const Program program = compile_schema(Json::parse(R"({"enum": ["ab", "ac"]})")).value();
  Automaton automaton(program);
  WorkAllowance none;
  ASSERT_TRUE(none.spend(none.left()));
  EXPECT_EQ(automaton.start(none), Automaton::kTooCostly);
  EXPECT_EQ(automaton.run(Automaton::kTooCostly, "x", none), Automaton::kTooCostly);
  WorkAllowance full;
  const StateId start = automaton.start(full);
  ASSERT_TRUE(Automaton::alive(start));
  EXPECT_EQ(automaton.start(none), start) << "known, so free";
  EXPECT_EQ(automaton.next(start, '"', none), Automaton::kTooCostly);
  const StateId inside = automaton.next(start, '"', full);
  ASSERT_TRUE(Automaton::alive(inside));
  EXPECT_EQ(automaton.next(start, '"', none), inside);
  EXPECT_EQ(automaton.next(inside, 'x', none), Automaton::kDead);
  none.earn(1);
  EXPECT_TRUE(automaton.accepting(automaton.run(inside, "ac\"", none)));
  EXPECT_LT(WorkAllowance::kMost - full.left(), 200u);
}

// Texts of 64 KiB, that are equal but for their ends.
TEST(GrammarLimits, LongConstants) {
  const std::string same(65536, 'a');
  const auto tokens = testing::constrained(Json{{"enum", {same + "b", same + "c", same}}}.dump());
  EXPECT_TRUE(takes(tokens, in_quotes(same)));
  EXPECT_TRUE(takes(tokens, in_quotes(same + "c")));
  EXPECT_FALSE(takes(tokens, in_quotes(same + "d")));
  EXPECT_FALSE(takes(tokens, in_quotes(same.substr(1) + "b")));
}

TEST(GrammarLimits, LongNamesBesideAdditionalProperties) {
  const std::string name(65536, 'a');
  const Json integer = {{"type", "integer"}};
  const auto tokens = testing::constrained(
      Json{{"properties", {{name, integer}}}, {"additionalProperties", {{"type", "null"}}}}.dump());
  const auto object = [](std::string_view key, std::string_view value) {
    return fmt::format("{{\"{}\":{}}}", key, value);
  };
  EXPECT_TRUE(takes(tokens, object(name, "1")));
  EXPECT_FALSE(takes(tokens, object(name, "null")));
  for (const std::string& other :
       {name + "a", name.substr(1), name.substr(1) + "b", name.substr(0, 9)}) {
    EXPECT_TRUE(takes(tokens, object(other, "null")));
    EXPECT_FALSE(takes(tokens, object(other, "1")));
  }
}

TEST(GrammarLimits, LongerOnesAreRefused) {
  const std::string same(250'000, 'a');
  for (const Json& schema :
       {Json{{"enum", {same + "b", same + "c"}}},
        Json{{"properties", {{same, true}}}, {"additionalProperties", true}}}) {
    const auto grammar = Grammar::from_schema(schema);
    ASSERT_FALSE(grammar.ok());
    EXPECT_NE(grammar.error().message.find("too large"), std::string::npos);
  }
}

// A name that JSON writes with escapes is none of the raw names of other members.
TEST(GrammarLimits, OtherNamesAreRaw) {
  const auto tokens = testing::constrained(
      R"({"properties": {"a\"b": {"type": "integer"}}, "additionalProperties": {"type": "null"}})");
  EXPECT_TRUE(takes(tokens, R"({"a\"b":1,"a":null})"));
  EXPECT_TRUE(takes(tokens, R"({"ab":null})"));
  EXPECT_FALSE(takes(tokens, R"({"a"bc":null})"));
}

Json tagged(const std::string& name, const Json& value) {
  return {{"type", "object"}, {"properties", {{name, {{"const", value}}}}}, {"required", {name}}};
}

TEST(GrammarLimits, OverlapsOfManySchemas) {
  Json constants = Json::array();
  Json objects = Json::array();
  for (int i = 0; i < 2000; ++i) {
    constants.push_back({{"const", i}});
    objects.push_back(tagged("kind", i));
  }
  EXPECT_EQ(find_overlap({}, constants), std::nullopt);
  EXPECT_EQ(find_overlap({}, objects), std::nullopt);
  constants.push_back({{"enum", {-1, 7.0}}});
  objects.push_back(tagged("kind", 7));
  EXPECT_EQ(find_overlap({}, constants), std::pair(std::size_t{7}, std::size_t{2000}));
  ASSERT_TRUE(find_overlap({}, objects).has_value());
}

TEST(GrammarLimits, OverlapsByTypeAndTag) {
  const auto overlap = [](const char* schemas) {
    return find_overlap({}, Json::parse(schemas)).has_value();
  };
  EXPECT_FALSE(overlap(R"([{"type": "string"}])"));
  EXPECT_FALSE(overlap(R"([{}])"));
  EXPECT_TRUE(overlap(R"([{}, {"const": 1}])"));
  EXPECT_FALSE(overlap(R"([{"type": ["string", "null"]}, {"type": "integer"}, {"enum": [true]}])"));
  EXPECT_TRUE(overlap(R"([{"type": ["string", "null"]}, {"type": "number"}, {"const": null}])"));
  EXPECT_TRUE(overlap(R"([{"type": "number"}, {"const": 1}])"));
  EXPECT_FALSE(overlap(R"([{"const": {"a": 1}}, {"enum": [{"a": 2}, 1]}])"));
  // Each two have a tag, no tag tells all apart.
  const auto object = [](const Json& constants) {
    Json schema = {{"type", "object"}, {"required", Json::array()}};
    for (const auto& [name, value] : constants.items()) {
      schema["properties"][name] = {{"const", value}};
      schema["required"].push_back(name);
    }
    return schema;
  };
  Json three = {object({{"a", 1}, {"b", 1}}), object({{"a", 1}, {"b", 2}}), object({{"a", 2}})};
  EXPECT_EQ(find_overlap({}, three), std::nullopt);
  three[2] = object({{"b", 2}});
  EXPECT_EQ(find_overlap({}, three), std::pair(std::size_t{1}, std::size_t{2}));
  three[1]["required"] = Json::array();
  EXPECT_EQ(find_overlap({}, three), std::pair(std::size_t{0}, std::size_t{1}));
}

TEST(GrammarLimits, ManyPartsOfAllOfHoldTogether) {
  Json parts = Json::array();
  Json all = Json::object();
  for (int i = 0; i < 300; ++i) {
    const std::string name = fmt::format("m{}", i);
    parts.push_back({{"properties", {{name, {{"const", i}}}, {"last", {{"minimum", i}}}}},
                     {"required", {"last", name}}});
    all[name] = i;
  }
  Json document = Json::object();
  for (const auto& [name, value] : all.items()) {
    document[name] = value;
    if (document.size() == 1) document["last"] = 299;
  }
  const auto tokens = testing::constrained(Json{{"allOf", parts}}.dump());
  EXPECT_TRUE(takes(tokens, document.dump()));
  document["last"] = 298;
  EXPECT_FALSE(takes(tokens, document.dump()));
}

}  // namespace
}  // namespace replayssm::grammar
