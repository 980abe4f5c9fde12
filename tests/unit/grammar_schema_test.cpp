#include <gtest/gtest.h>

#include "grammar/grammar.h"
#include "grammar_vocabulary.h"

namespace replayssm::grammar {
namespace {

using Json = nlohmann::ordered_json;

// How many bytes the grammar takes; kAll if it takes all and the text is a whole document.
constexpr std::size_t kAll = static_cast<std::size_t>(-1);
constexpr std::size_t kUnfinished = static_cast<std::size_t>(-2);

std::size_t accepted_bytes(const std::shared_ptr<ConstrainedTokens>& tokens,
                           std::string_view text) {
  GrammarState state(tokens);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!state.accept(text.substr(i, 1))) return i;
  }
  return state.finished() ? kAll : kUnfinished;
}

struct Case {
  std::string schema;
  std::vector<std::string> valid;
  // The text with "@" in front of the byte that must be refused, or at the end if it must not be
  // accepted as finished.
  std::vector<std::string> invalid;
};

void check(const Case& c) {
  const auto grammar = Grammar::from_schema(Json::parse(c.schema));
  ASSERT_TRUE(grammar.ok()) << c.schema << ": " << grammar.error().message;
  const auto tokens = testing::constrained(*grammar);
  for (const std::string& text : c.valid) {
    EXPECT_EQ(accepted_bytes(tokens, text), kAll) << c.schema << "\n" << text;
  }
  for (std::string text : c.invalid) {
    const std::size_t at = text.find('@');
    ASSERT_NE(at, std::string::npos);
    text.erase(at, 1);
    const std::size_t expected = at == text.size() ? kUnfinished : at;
    EXPECT_EQ(accepted_bytes(tokens, text), expected) << c.schema << "\n" << text;
  }
}

TEST(GrammarSchema, ObjectsTakeTheirMembersInOrder) {
  check({R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"},
             "c": {"type": "boolean"}}, "required": ["b"], "additionalProperties": false})",
         {R"({"b": ""})", R"({"a":1,"b":"x","c":true})", R"({"a": 1, "b": "x"})",
          "\n\n{\n  \"b\": \"x\",\n  \"c\": false\n}"},
         {"{@}", R"({"a": 1@})", R"({"b": "", "@a": 1})", R"({"b": "", "c": @1})",
          R"({"b": "", "@d": 1})", R"({"b": ""}@ )", R"({"b": @1)", R"({"b": "x@)", "@[",
          R"({"b"@ : ""})", R"({"b": "" @, "c": true})", R"({"b": "",@})"}});
}

TEST(GrammarSchema, OptionalMembersMayBeSkippedOneByOne) {
  check({R"({"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}})",
         {"{}", "{ }", R"({"a":1})", R"({"b":2})", R"({"c":3})", R"({"a":1,"c":3})",
          R"({"a":1,"b":2,"c":3})", R"({"b":2,"c":3})"},
         {R"({"c":3@,)", R"({"a":1,@})", R"({"a":1,"@a":1})", R"({@1)"}});
}

TEST(GrammarSchema, OtherMembersComeLastAndAreNoneOfTheProperties) {
  check(
      {R"({"properties": {"ab": {"type": "integer"}, "é": {"type": "null"}}, "required": ["ab"],
             "additionalProperties": {"type": "boolean"}})",
       {R"({"ab":1})", R"({"ab":1,"é":null})", R"({"ab":1,"a":true})", R"({"ab":1,"abc":true})",
        R"({"ab":1,"b":true,"":false})", R"({"ab":1,"ê":true})", R"({"ab":1,"é":null,"x":true})"},
       {R"({"a@":true})", R"({"ab":1,"x":@1})", R"({"ab":1,"ab@":true})",
        R"({"ab":1,"x":true,"é@":true})", R"({"ab":1,"@\u0061":true})", R"({"ab":1,"x":true,@})"}});
}

TEST(GrammarSchema, AnObjectWithoutPropertiesTakesAnyMembers) {
  check({R"({"type": "object"})",
         {"{}", R"({"a": [1, {"b": null}], "c\n\u00e9": "x"})"},
         {"@[]", R"({"a"@})", R"({@a)"}});
  check({R"({"type": "object", "additionalProperties": false})", {"{}"}, {"{@\""}});
  check({R"({"required": ["k"]})", {R"({"k": 1})", R"({"k": 1, "l": 2})"}, {"{@}", R"({"@l": 1)"}});
}

TEST(GrammarSchema, ArraysCountAndPlaceTheirItems) {
  check({R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
         {"[1,2]", "[1, 2, 3]", "[\n  1,\n  2\n]"},
         {"[@]", "[1@]", "[1,2,3@,4]", "[1,@\"\"", "[1@ ,2]", "[1,2,@]"}});
  check({R"({"type": "array", "prefixItems": [{"const": "a"}, {"const": "b"}], "items": false})",
         {"[]", R"(["a"])", R"(["a","b"])"},
         {R"(["@b"])", R"(["a","b"@,)"}});
  check({R"({"prefixItems": [{"const": 1}], "items": {"const": 2}, "minItems": 3})",
         {"[1,2,2]", "[1,2,2,2,2]"},
         {"[1@]", "[1,2@]", "[@2"}});
  check({R"({"type": "array", "maxItems": 0})", {"[]", "[ ]"}, {"[@1"}});
  check(
      {R"({"type": "array", "prefixItems": [{"const": 1}], "items": {"const": 2}, "maxItems": 1})",
       {"[]", "[1]"},
       {"[1@,"}});
}

TEST(GrammarSchema, StringsCountCharactersNotBytes) {
  check({R"({"type": "string", "minLength": 2, "maxLength": 3})",
         {R"("ab")", R"("漢字é")", R"("\n\u00e9")", R"("\ud83d\ude00x")", R"("😀😀😀")"},
         {R"("a@")", R"("abc@d")", R"("\ud83d\ude00@")", R"("@)", R"("漢字é@x")"}});
}

TEST(GrammarSchema, StringsAreWellFormed) {
  check({R"({"type": "string"})",
         {R"("")", R"("\"\\\/\b\f\n\r\t")", R"("\uD83D\uDE00")", "\"\x7f\""},
         {"\"@\n", "\"@\x01", R"("\@x")", R"("\u12@g")", R"("\ud83d@x")", R"("\ud83d\@n")",
          R"("\u@"")", R"("\ud83d\ud@83d")", "\"@\x80", "\"\xC3@(", "\"@\xC0\x80",
          "\"\xED@\xA0\x80", "\"\xF4@\x90", R"("\ud@e00")"}});
}

TEST(GrammarSchema, NumbersAreJsonNumbers) {
  check({R"({"type": "number"})",
         {"0", "-0", "12", "0.5", "-1.25e-7", "1E+10", "1e99", "1e-300", "123456789012345678"},
         {"0@1", "-@", "1.@", "1e@", "@+1", "1e10@0", "@.5", "1.@e", "123456789012345678@9"}});
  check({R"({"type": "integer"})", {"0", "-7", "10"}, {"1@.0", "1@e", "0@0"}});
}

TEST(GrammarSchema, ConstantsAndEnumerations) {
  check({R"({"enum": ["red", "re", "green", 1, 12, null, true, [1, {"a": "b"}]]})",
         {R"("red")", R"("re")", R"("green")", "1", "12", "null", "true", R"([1, {"a": "b"}])",
          R"([1,{"a":"b"}])"},
         {R"("r@")", R"("red@d)", "1@3", "@false", R"([1,@2)"}});
  check({R"({"type": "string", "enum": ["a", 5, null]})", {R"("a")"}, {"@5", "@n"}});
  check({R"({"const": "a\"\n\u0001é"})", {R"("a\"\n\u0001é")"}, {R"("a\"\n\u0001@x)"}});
}

TEST(GrammarSchema, TypesMayBeAlternatives) {
  check({R"({"type": ["string", "null"], "maxLength": 1})",
         {R"("")", R"("x")", "null"},
         {"@1", R"("x@x")"}});
  check({R"({"type": ["integer", "number"]})", {"1", "1.5"}, {"@t"}});
  check({R"({"anyOf": [{"type": "integer"}, {"type": "string"}]})", {"1", R"("1")"}, {"@["}});
  check({R"({"oneOf": [{"type": "integer"}, {"type": "boolean"}]})", {"1", "true"}, {"@\""}});
  check({R"({"oneOf": [
      {"type": "object", "properties": {"k": {"const": "a"}, "x": {"type": "integer"}},
       "required": ["k", "x"]},
      {"type": "object", "properties": {"k": {"enum": ["b", "c"]}}, "required": ["k"]}]})",
         {R"({"k": "a", "x": 1})", R"({"k": "b"})", R"({"k": "c"})"},
         {R"({"k": "a"@})", R"({"k": "b"@, "x": 1})", R"({"k": "@d"})"}});
}

TEST(GrammarSchema, AllOfAndReferencesWithSiblingsHoldTogether) {
  check({R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}},
                       {"properties": {"b": {"type": "null"}, "a": {"minimum": 3}},
                        "required": ["a"]}]})",
         {R"({"a": 3})", R"({"a": 4, "b": null})"},
         {R"({"a": 2@})", "{@}"}});
  check({R"({"$defs": {"s": {"type": "string", "maxLength": 5}}, "$ref": "#/$defs/s",
             "minLength": 1, "description": "d"})",
         {R"("x")"},
         {R"("@")", R"("abcde@f")"}});
  check({R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
             "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
         {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":1})"},
         {"{@}"}});
}

// `items` governs the places behind its own schema's `prefixItems`, also those that the other
// schema's list names.
TEST(GrammarSchema, PlacesOfArraysHoldTogether) {
  check({R"({"type": "array", "minItems": 1, "maxItems": 1, "allOf": [
             {"prefixItems": [{"type": ["null", "boolean"]}]}, {"items": {"type": "boolean"}}]})",
         {"[true]"},
         {"[@null]", "[@]"}});
  check({R"({"allOf": [{"items": {"minimum": 3}},
             {"prefixItems": [{"type": "integer"}, {"maximum": 5}], "items": {"type": "integer"}}],
             "type": "array"})",
         {"[]", "[3]", "[3,5]", "[3,4.5,9]"},
         {"[2@]", "[3,@6", "[3,5,9@.", "[3,5,2@]"}});
  check({R"({"type": "array", "allOf": [{"prefixItems": [{}, {"const": 1}, {}], "items": false},
             {"prefixItems": [{"const": 0}], "items": {"type": "integer"}}]})",
         {"[]", "[0,1]", "[0,1,7]"},
         {"[@1", "[0,@2", "[0,1,@\"", "[0,1,7@,"}});
  check({R"({"type": "array", "allOf": [{"items": false}, {"prefixItems": [{"type": "null"}]}]})",
         {"[]"},
         {"[@n"}});
}

TEST(GrammarSchema, RecursionFollowsReferences) {
  const std::string tree = R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object",
      "properties": {"v": {"type": "integer"}, "kids": {"type": "array",
      "items": {"$ref": "#/$defs/node"}}}, "required": ["v"]}}})";
  check({tree,
         {R"({"v":1})", R"({"v":1,"kids":[]})",
          R"({"v":1,"kids":[{"v":2,"kids":[{"v":3}]},{"v":4}]})"},
         {R"({"v":1,"kids":[@1)", R"({"v":1,"kids":[{@})"}});
  check({R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})", {"null"}, {"@1"}});
  check({R"({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
             "required": ["next"]})",
         {R"({"next":{"next":null}})"},
         {"{@}"}});
}

TEST(GrammarSchema, FormatsAreEnforced) {
  check({R"({"type": "string", "format": "date"})",
         {R"("2024-02-28")", R"("1999-12-31")"},
         {R"("2024-02-@3)", R"("2024-1@3)", R"("2024-04-3@1")", R"("2024-04-3@)"}});
  check({R"({"format": "date-time"})",
         {R"("2024-02-28T23:59:59.5Z")", R"("2024-02-28T00:00:00+01:30")"},
         {R"("2024-02-28T2@4)", R"("2024-02-28T00:00:00@")"}});
  check(
      {R"({"format": "uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123e4567@8)"}});
  check({R"({"format": "ipv4"})", {R"("255.0.10.1")"}, {R"("25@6.)", R"("1.2.3@")"}});
  check({R"({"format": "email"})", {R"("a.b+c@d-e.org")"}, {R"("a.@.)", R"("a-@")"}});
}

TEST(GrammarSchema, JsonObjectTakesAnyObject) {
  const auto tokens = testing::constrained(Grammar::json_object());
  EXPECT_EQ(accepted_bytes(tokens, R"({"a": [1, 2.5, "x", null, true, {"b": []}], "c": {}})"),
            kAll);
  EXPECT_EQ(accepted_bytes(tokens, "[]"), 0u);
  EXPECT_EQ(accepted_bytes(tokens, "{}x"), 2u);
}

TEST(GrammarSchema, WhiteSpaceIsBounded) {
  const auto tokens = testing::constrained(R"({"const": {"a": 1}})");
  EXPECT_EQ(accepted_bytes(tokens, "{ \"a\":\t1 }"), kAll);
  EXPECT_EQ(accepted_bytes(tokens, "{  \"a\": 1}"), 2u);
  EXPECT_EQ(accepted_bytes(tokens, "{\n" + std::string(32, ' ') + "\"a\": 1\r\n}"), kAll);
  EXPECT_EQ(accepted_bytes(tokens, "{\n" + std::string(33, ' ') + "\"a\": 1}"), 34u);
  EXPECT_EQ(accepted_bytes(tokens, "\n\r\n{\"a\": 1}"), kAll);
  EXPECT_EQ(accepted_bytes(tokens, "\n\n\n"), 2u);
  EXPECT_EQ(accepted_bytes(tokens, "{ \n"), 2u);
  EXPECT_EQ(accepted_bytes(tokens, "\r{"), 1u);
}

// A model whose greatest logit is always that of white space, as a weak one's may be.
TEST(GrammarSchema, ATextThatPrefersWhiteSpaceEnds) {
  const auto tokens = testing::constrained(R"({"type": "object", "properties": {
      "a": {"type": "boolean"}, "b": {"type": "array", "items": {"const": 1}, "maxItems": 3},
      "c": {"type": "null"}}, "required": ["a", "b", "c"]})");
  GrammarState state(tokens);
  std::vector<std::uint32_t> bits(tokens->vocabulary().mask_words());
  std::size_t steps = 0;
  while (!state.finished() && steps < 1000) {
    EXPECT_TRUE(state.fill_mask(bits));
    const auto allowed = [&](unsigned char byte) {
      return (bits[byte / 32u] >> (byte % 32u) & 1u) != 0;
    };
    int next = -1;
    for (const unsigned char byte : std::string_view("\n \t\r")) {
      if (next < 0 && allowed(byte)) next = byte;
    }
    for (int byte = 0; next < 0 && byte < 256; ++byte) {
      if (allowed(static_cast<unsigned char>(byte))) next = byte;
    }
    ASSERT_GE(next, 0) << state.position();
    ASSERT_TRUE(state.accept(static_cast<TokenId>(next)));
    ++steps;
  }
  EXPECT_TRUE(state.finished());
  EXPECT_LT(steps, 500u) << state.position();
}

TEST(GrammarSchema, DepthIsBounded) {
  const auto tokens = testing::constrained("{}");
  EXPECT_EQ(accepted_bytes(tokens, std::string(64, '[') + std::string(64, ']')), kAll);
  EXPECT_EQ(accepted_bytes(tokens, std::string(65, '[')), 64u);
}

// At the deepest place only what can still be completed is offered: an object that needs an array
// inside does not begin one level too deep.
TEST(GrammarSchema, NothingIsBegunThatCannotBeCompletedWithinTheDepth) {
  const auto tokens = testing::constrained(R"({"type": "object", "properties": {
      "kids": {"type": "array", "items": {"$ref": "#"}}}, "required": ["kids"]})");
  std::string open;
  for (int i = 0; i < 32; ++i) open += R"({"kids":[)";
  EXPECT_EQ(accepted_bytes(tokens, open), kUnfinished);
  EXPECT_EQ(accepted_bytes(tokens, open + "{"), open.size());
}

}  // namespace
}  // namespace replayssm::grammar
