// P02 (waybarrios/vllm-mlx#539; mlx-serve #331, maclocal-api #44): a keyword of the schema was
// ignored without a word, or the generation never ended.
#include <gtest/gtest.h>

#include "grammar_vocabulary.h"
#include "schema_validator.h"

namespace replayssm::grammar {
namespace {

using Json = nlohmann::ordered_json;

TEST(P02, PatternRecursionAndClosedObjectsAreEnforcedAndEnd) {
  const std::string schema = R"({
    "$defs": {"item": {"type": "object", "properties": {
        "code": {"type": "string", "pattern": "^[A-Z]{3}$"},
        "inside": {"type": "array", "items": {"$ref": "#/$defs/item"}}},
      "required": ["code", "inside"], "additionalProperties": false}},
    "$ref": "#/$defs/item"})";
  const auto tokens = testing::constrained(schema);
  const testing::SchemaValidator validator(Json::parse(schema));
  std::mt19937 random(6);
  for (int round = 0; round < 100; ++round) {
    GrammarState state(tokens);
    const std::string text = testing::sample(state, random, 100, 4000);
    ASSERT_FALSE(text.empty()) << state.position().substr(0, 300);
    ASSERT_TRUE(validator.valid(Json::parse(text))) << text;
  }
}

TEST(P02, WhatIsNotEnforcedIsRefusedByName) {
  for (const std::string keyword : {"not", "if", "patternProperties", "multipleOf", "contains",
                                    "uniqueItems", "minProperties", "propertyNames", "unknown"}) {
    const auto grammar = Grammar::from_schema(
        Json::parse(R"({"type": "object", "properties": {"a": {")" + keyword + R"(": true}}})"));
    ASSERT_FALSE(grammar.ok()) << keyword;
    EXPECT_NE(grammar.error().message.find('"' + keyword + '"'), std::string::npos);
    EXPECT_NE(grammar.error().message.find("/properties/a"), std::string::npos);
  }
}

}  // namespace
}  // namespace replayssm::grammar
