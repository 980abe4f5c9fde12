#include <gtest/gtest.h>

#include "grammar/grammar.h"

namespace replayssm::grammar {
namespace {

using Json = nlohmann::ordered_json;

struct Refusal {
  std::string schema;
  std::vector<std::string> named;  // parts of the message
};

void expect_refused(const Refusal& refusal) {
  const auto grammar = Grammar::from_schema(Json::parse(refusal.schema));
  ASSERT_FALSE(grammar.ok()) << refusal.schema;
  for (const std::string& part : refusal.named) {
    EXPECT_NE(grammar.error().message.find(part), std::string::npos) << refusal.schema << "\n"
                                                                     << grammar.error().message;
  }
}

TEST(GrammarRefusal, UnsupportedKeywordsAreNamedWithTheirPath) {
  for (const std::string keyword : {"not",
                                    "if",
                                    "then",
                                    "else",
                                    "patternProperties",
                                    "propertyNames",
                                    "minProperties",
                                    "maxProperties",
                                    "dependentRequired",
                                    "dependentSchemas",
                                    "unevaluatedProperties",
                                    "unevaluatedItems",
                                    "contains",
                                    "minContains",
                                    "maxContains",
                                    "multipleOf",
                                    "contentEncoding",
                                    "contentMediaType",
                                    "$anchor",
                                    "$dynamicRef",
                                    "additionalItems",
                                    "nullable",
                                    "anyof",
                                    "madeUp"}) {
    expect_refused({"{\"" + keyword + "\": 1}", {"schema #: ", "\"" + keyword + "\""}});
    expect_refused({R"({"properties": {"a": {"items": {")" + keyword + R"(": 1}}}})",
                    {"#/properties/a/items: ", "\"" + keyword + "\""}});
    expect_refused({R"({"$defs": {"d": {")" + keyword + R"(": 1}}, "$ref": "#/$defs/d"})",
                    {"#/$defs/d: ", "\"" + keyword + "\""}});
    expect_refused({R"({"allOf": [{"type": "object"}, {")" + keyword + R"(": 1}]})",
                    {"allOf/1: ", "\"" + keyword + "\""}});
  }
  expect_refused({R"({"uniqueItems": true})", {"\"uniqueItems\""}});
  EXPECT_TRUE(Grammar::from_schema(Json::parse(R"({"type": "array", "uniqueItems": false})")).ok());
}

TEST(GrammarRefusal, WrongValuesAreNamedWithWhatIsAccepted) {
  expect_refused({R"({"type": "text"})", {"\"type\"", "text", "boolean"}});
  expect_refused({R"({"type": "ber"})", {"\"type\""}});
  expect_refused({R"({"type": []})", {"\"type\""}});
  expect_refused({R"({"minLength": -1})", {"\"minLength\"", "-1"}});
  expect_refused({R"({"maxLength": 1.5})", {"\"maxLength\"", "1.5"}});
  expect_refused({R"({"maxItems": 1e9})", {"\"maxItems\""}});
  expect_refused({R"({"minLength": 3, "maxLength": 2})", {"minLength", "maxLength"}});
  expect_refused({R"({"minimum": 1e30})", {"\"minimum\""}});
  expect_refused({R"({"minimum": "1"})", {"\"minimum\""}});
  expect_refused({R"({"minimum": 2, "maximum": 1})", {"minimum", "maximum"}});
  expect_refused({R"({"type": "integer", "exclusiveMinimum": 1, "maximum": 1.9})", {"minimum"}});
  expect_refused({R"({"minimum": 2, "exclusiveMinimum": 1})", {"exclusiveMinimum"}});
  expect_refused({R"({"enum": []})", {"\"enum\""}});
  expect_refused({R"({"type": "string", "enum": [1]})", {"\"enum\""}});
  expect_refused({R"({"enum": ["a"], "minLength": 1})", {"\"minLength\"", "\"enum\""}});
  expect_refused({R"({"items": [{}]})", {"\"items\"", "prefixItems"}});
  expect_refused({R"({"items": false, "minItems": 1})", {"\"minItems\""}});
  expect_refused({R"({"required": ["a"], "additionalProperties": false})", {"\"required\"", "a"}});
  expect_refused({R"({"required": "a"})", {"\"required\""}});
  expect_refused({R"({"format": "hostname"})", {"\"format\"", "hostname", "date-time"}});
  expect_refused({R"({"format": "date", "maxLength": 3})", {"\"format\"", "maxLength"}});
  expect_refused({R"({"pattern": "a", "minLength": 3})", {"\"pattern\"", "minLength"}});
  expect_refused(
      {R"({"properties": {"a": false}, "required": ["a"]})", {"#/properties/a", "false"}});
  expect_refused({"5", {"expected an object or a boolean"}});
}

TEST(GrammarRefusal, PatternsOutsideTheSubsetAreNamed) {
  for (const std::string pattern :
       {"(?=a)", "(?!a)", "(?<=a)", "(?<n>a)", "\\\\1", "\\\\bx",    "\\\\p{L}",     "a^",
        "a$b",   "(^a)",  "(a$)",   "a**",     "*",     "a{2,1}",    "a{1001}",      "a{x}",
        "[b-a]", "[a",    "(a",     "a)",      "\\\\",  "\\\\uD800", "[^\\\\s\\\\S]"}) {
    expect_refused({R"({"pattern": ")" + pattern + "\"}", {"pattern"}});
  }
}

TEST(GrammarRefusal, ReferencesMustLeadSomewhereAndEnd) {
  expect_refused({R"({"$ref": "#/$defs/x"})", {"$ref", "#/$defs/x"}});
  expect_refused({R"({"$ref": "other.json"})", {"$ref", "other.json"}});
  expect_refused({R"({"$ref": 5})", {"$ref"}});
  expect_refused({R"({"$ref": "#"})", {"without end"}});
  expect_refused({R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", {"without end"}});
  expect_refused({R"({"$ref": "#", "minLength": 1})", {"deeper"}});
  expect_refused({R"({"allOf": [{"$ref": "#"}]})", {"deeper"}});
}

TEST(GrammarRefusal, SchemasThatCannotBeMergedNameTheKeyword) {
  expect_refused({R"({"allOf": [{"type": "string"}, {"type": "integer"}]})", {"\"type\""}});
  expect_refused({R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})", {"\"pattern\""}});
  expect_refused({R"({"allOf": [{"properties": {"a": {}}, "additionalProperties": false},
                                {"properties": {"b": {}}}]})",
                  {"\"additionalProperties\""}});
  expect_refused({R"({"allOf": []})", {"\"allOf\""}});
}

TEST(GrammarRefusal, OneOfWithSchemasThatMayBothHold) {
  expect_refused(
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", {"\"oneOf\"", "anyOf"}});
  expect_refused({R"({"oneOf": [{"type": "object", "properties": {"a": {}}},
                                {"type": "object", "properties": {"b": {}}}]})",
                  {"\"oneOf\""}});
  expect_refused({R"({"oneOf": [{"const": 1}, {"enum": [2, 1]}]})", {"\"oneOf\""}});
  expect_refused({R"({"oneOf": [{}, {"type": "string"}]})", {"\"oneOf\""}});
}

TEST(GrammarRefusal, TooLargeAndTooDeepSchemas) {
  Json deep = true;
  for (int i = 0; i < 70; ++i) deep = Json{{"items", deep}};
  expect_refused({deep.dump(), {"deeper"}});
  Json large = {{"enum", Json::array()}};
  for (int i = 0; i < 3000; ++i) large["enum"].push_back(std::string(100, 'x') + std::to_string(i));
  EXPECT_TRUE(Grammar::from_schema(large).ok());  // beginnings are shared
  for (int i = 0; i < 3000; ++i) large["enum"].push_back(std::to_string(i) + std::string(100, 'x'));
  expect_refused({large.dump(), {"too large"}});
}

TEST(GrammarRefusal, SchemasThatMultiplyOrNestWithoutEnd) {
  // Each level asks for both alternatives of the next under a condition of its own.
  Json schema = {{"$defs", {{"a15", {{"type", "string"}}}}}, {"$ref", "#/$defs/a0"}};
  for (int i = 0; i < 15; ++i) {
    const Json next = {{"$ref", fmt::format("#/$defs/a{}", i + 1)}};
    schema["$defs"][fmt::format("a{}", i)] = {{"anyOf", Json::array({next, next})},
                                              {"minLength", i}};
  }
  expect_refused({schema.dump(), {"too large"}});
  Json deep = 1;
  for (int i = 0; i < 300; ++i) deep = Json::array({deep});
  expect_refused({Json{{"const", deep}}.dump(), {"200 levels"}});
}

}  // namespace
}  // namespace replayssm::grammar
