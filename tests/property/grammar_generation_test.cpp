// Texts drawn from the mask end, are JSON, and fit their schema by an independent validator.
#include <gtest/gtest.h>

#include "grammar_vocabulary.h"
#include "schema_validator.h"

namespace replayssm::grammar {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<std::string>& schemas() {
  static const std::vector<std::string> list = {
      "{}",
      R"({"type": "object"})",
      R"({"type": "string"})",
      R"({"type": "integer", "minimum": -5, "exclusiveMaximum": 1200})",
      R"({"type": "number", "minimum": 0.25, "maximum": 1.5})",
      R"({"type": "number", "exclusiveMinimum": -1, "exclusiveMaximum": -0.5})",
      R"({"type": ["array", "null"], "items": {"type": "integer"}, "minItems": 2, "maxItems": 5})",
      R"({"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}],
          "items": {"type": "null"}, "minItems": 1, "maxItems": 4})",
      R"({"type": "object", "properties": {"name": {"type": "string", "minLength": 1,
          "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
          "tags": {"type": "array", "items": {"enum": ["a", "b", "c\n"]}}},
          "required": ["name", "age"], "additionalProperties": false})",
      R"({"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["b"],
          "additionalProperties": {"type": "boolean"}})",
      R"({"$defs": {"node": {"type": "object", "properties": {"v": {"type": "number"},
          "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
          "required": ["v", "kids"], "additionalProperties": false}}, "$ref": "#/$defs/node"})",
      R"({"anyOf": [{"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]},
                    {"type": "null"}]})",
      R"({"oneOf": [{"type": "object", "properties": {"kind": {"const": "circle"},
          "r": {"type": "number", "minimum": 0}}, "required": ["kind", "r"]},
          {"type": "object", "properties": {"kind": {"const": "square"},
          "side": {"type": "number", "exclusiveMinimum": 0}}, "required": ["kind", "side"]}]})",
      R"({"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,4}(x|y)?$"})",
      R"({"type": "string", "pattern": "b+"})",
      R"({"type": "object", "properties": {"when": {"type": "string", "format": "date-time"},
          "day": {"type": "string", "format": "date"}}, "required": ["when", "day"]})",
      R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}},
          {"properties": {"a": {"minimum": 10}, "b": {"type": ["string", "null"]}},
           "required": ["a", "b"]}]})",
      R"({"enum": [1, "x", null, {"k": [1, 2]}, [true]]})"};
  return list;
}

TEST(GrammarGeneration, EveryTextEndsAndFitsItsSchema) {
  std::mt19937 random(1);
  for (const std::string& schema : schemas()) {
    const auto tokens = testing::constrained(schema);
    const testing::SchemaValidator validator(Json::parse(schema));
    for (int round = 0; round < 60; ++round) {
      GrammarState state(tokens);
      const std::string text = testing::sample(state, random, 60, 5000);
      ASSERT_FALSE(text.empty()) << schema << "\nstuck after " << state.position().substr(0, 300);
      const Json document = Json::parse(text, nullptr, false);
      ASSERT_FALSE(document.is_discarded()) << schema << "\n" << text;
      ASSERT_TRUE(validator.valid(document)) << schema << "\n" << text;
    }
  }
}

// No help: where a schema bounds its documents, any choice of tokens ends.
TEST(GrammarGeneration, UniformChoiceAloneEnds) {
  std::mt19937 random(2);
  const std::string schema = R"({"type": "object", "properties": {"id": {"type": "integer"},
      "name": {"type": "string", "maxLength": 30}, "tags": {"type": "array", "maxItems": 3,
      "items": {"enum": ["a", "b"]}}}, "required": ["id", "name", "tags"]})";
  const auto tokens = testing::constrained(schema);
  const testing::SchemaValidator validator(Json::parse(schema));
  for (int round = 0; round < 100; ++round) {
    GrammarState state(tokens);
    const std::string text = testing::sample(state, random, 100'000, 2000);
    ASSERT_FALSE(text.empty()) << state.position().substr(0, 300);
    ASSERT_TRUE(validator.valid(Json::parse(text))) << text;
  }
}

}  // namespace
}  // namespace replayssm::grammar
