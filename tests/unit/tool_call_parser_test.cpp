#include "text/tool_call_parser.h"

#include <gtest/gtest.h>

#include <random>

#include "splits.h"
#include "tool_call_outcome.h"

namespace replayssm {
namespace {

using testing::Call;
using testing::ToolCallOutcome;
using Json = nlohmann::ordered_json;

const Json& tools() {
  static const Json list = Json::parse(R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {
      "type": "object",
      "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
      "required": ["city"]}}},
    {"type": "function", "function": {"name": "write", "parameters": {
      "type": "object",
      "$defs": {"mode": {"enum": [1, 2]}, "loop": {"$ref": "#/$defs/loop"},
        "knot": {"anyOf": [{"$ref": "#/$defs/knot"}, {"$ref": "#/$defs/knot"},
          {"$ref": "#/$defs/knot"}, {"$ref": "#/$defs/knot"}, {"$ref": "#/$defs/knot"},
          {"$ref": "#/$defs/knot"}, {"$ref": "#/$defs/knot"}, {"$ref": "#/$defs/knot"},
          {"type": "integer"}]}},
      "properties": {
        "text": {"type": "string"},
        "ratio": {"type": "number"},
        "count": {"type": "integer"},
        "force": {"type": "boolean"},
        "lines": {"type": "array", "items": {"type": "integer"}},
        "meta": {"type": "object"},
        "note": {"type": ["string", "null"]},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "mode": {"$ref": "#/$defs/mode"},
        "loop": {"$ref": "#/$defs/loop"},
        "knot": {"$ref": "#/$defs/knot"},
        "any": {}},
      "additionalProperties": {"type": "integer"}}}}])");
  return list;
}

void expect_outcome(const std::string& text, std::string_view format,
                    const ToolCallOutcome& expected) {
  for (const auto& pieces : testing::splits_of(text)) {
    ASSERT_EQ(testing::parse_tool_calls(pieces, format, tools()), expected) << text;
  }
}

void expect_unchanged(const std::string& text, std::string_view format) {
  expect_outcome(text, format, {text, {}});
}

std::string xml(std::string_view name,
                const std::vector<std::pair<std::string, std::string>>& set) {
  std::string text = fmt::format("<tool_call>\n<function={}>\n", name);
  for (const auto& [key, value] : set) {
    text += fmt::format("<parameter={}>\n{}\n</parameter>\n", key, value);
  }
  return text + "</function>\n</tool_call>";
}

// The JSON text that `value` becomes as parameter `key` of the tool "write".
std::string typed(const std::string& key, const std::string& value) {
  const auto outcome =
      testing::parse_tool_calls({xml("write", {{key, value}})}, "qwen3_coder", tools());
  if (outcome.calls.size() != 1) return "no call";
  const std::string& arguments = outcome.calls[0].arguments;
  const std::string before = "{\"" + key + "\": ";
  EXPECT_TRUE(arguments.starts_with(before)) << arguments;
  return arguments.substr(before.size(), arguments.size() - before.size() - 1);
}

TEST(ToolCallParser, TextWithoutCallsPassesThrough) {
  for (const std::string_view format : ToolCallParser::formats()) {
    expect_unchanged("hello < world <tool_ \n\n", format);
    expect_unchanged("  \n", format);
    expect_unchanged("", format);
  }
}

TEST(ToolCallParser, AnUnknownFormatIsRefusedWithTheNamesOfTheKnown) {
  const auto parser = ToolCallParser::make("yaml", nullptr, 1);
  ASSERT_FALSE(parser.ok());
  EXPECT_NE(parser.error().message.find("qwen3_coder, hermes"), std::string::npos);
}

TEST(ToolCallParserXml, OneCallWithoutContent) {
  expect_outcome(xml("get_weather", {{"city", "Paris"}, {"days", "3"}}), "qwen3_coder",
                 {"", {{"get_weather", R"({"city": "Paris", "days": 3})"}}});
}

TEST(ToolCallParserXml, ContentBeforeTheCallLosesTheFormatsWhitespace) {
  expect_outcome("Let me look.\n\n" + xml("get_weather", {{"city", "Oslo"}}) + "\n", "qwen3_coder",
                 {"Let me look.", {{"get_weather", R"({"city": "Oslo"})"}}});
}

TEST(ToolCallParserXml, ParallelCallsAndContentBetweenThem) {
  expect_outcome(
      xml("get_weather", {{"city", "Oslo"}}) + "\n" + xml("get_weather", {{"city", "Rome"}}),
      "qwen3_coder",
      {"", {{"get_weather", R"({"city": "Oslo"})"}, {"get_weather", R"({"city": "Rome"})"}}});
  expect_outcome(xml("a", {}) + "and" + xml("b", {}) + " done \n", "qwen3_coder",
                 {"and done \n", {{"a", "{}"}, {"b", "{}"}}});
}

TEST(ToolCallParserXml, ValuesAreTypedByTheSchema) {
  EXPECT_EQ(typed("text", "5"), R"("5")");
  EXPECT_EQ(typed("text", "null"), R"("null")");
  EXPECT_EQ(typed("text", R"({"a": 1})"), R"("{\"a\": 1}")");
  EXPECT_EQ(typed("count", "42"), "42");
  EXPECT_EQ(typed("count", "123456789012345678901234567890"), "123456789012345678901234567890");
  EXPECT_EQ(typed("count", "5.0"), "5.0");
  EXPECT_EQ(typed("ratio", "-1.50e3"), "-1.50e3");
  EXPECT_EQ(typed("ratio", "7"), "7");
  EXPECT_EQ(typed("force", "true"), "true");
  EXPECT_EQ(typed("force", "False"), "false");
  EXPECT_EQ(typed("lines", "[1, [2]]"), "[1, [2]]");
  EXPECT_EQ(typed("meta", R"({"a": {"b": [null]}})"), R"({"a": {"b": [null]}})");
  EXPECT_EQ(typed("note", "null"), "null");
  EXPECT_EQ(typed("note", "nullify"), R"("nullify")");
  EXPECT_EQ(typed("maybe", "None"), "null");
  EXPECT_EQ(typed("maybe", "8"), "8");
  EXPECT_EQ(typed("mode", "2"), "2");
  EXPECT_EQ(typed("unlisted", "9"), "9");
  EXPECT_EQ(typed("knot", "9"), "9");
}

TEST(ToolCallParserXml, TextThatIsNotOfItsTypeStaysAString) {
  EXPECT_EQ(typed("count", "5.5"), R"("5.5")");
  EXPECT_EQ(typed("count", "many"), R"("many")");
  EXPECT_EQ(typed("count", "1e300"), "1e300");
  EXPECT_EQ(typed("count", ""), R"("")");
  EXPECT_EQ(typed("force", "1"), R"("1")");
  EXPECT_EQ(typed("lines", "[1, 2"), R"("[1, 2")");
  EXPECT_EQ(typed("ratio", "01"), R"("01")");
  EXPECT_EQ(typed("loop", "1"), R"("1")");
  EXPECT_EQ(typed("any", "1"), R"("1")");
}

TEST(ToolCallParserXml, StringsKeepTheirLinesAndMarkup) {
  EXPECT_EQ(typed("text", "  a\n\n b\n"), R"("  a\n\n b\n")");
  EXPECT_EQ(typed("text", "x </parameter y </parameter> z"), R"("x </parameter y </parameter> z")");
  EXPECT_EQ(typed("text", "<parameter=q>\n1"), R"("<parameter=q>\n1")");
  EXPECT_EQ(typed("text", "a </function> b </tool_call> c"), R"("a </function> b </tool_call> c")");
  EXPECT_EQ(typed("text", "say \"hi\" \\ \t"), R"("say \"hi\" \\ \t")");
}

TEST(ToolCallParserXml, SplitsInsideMarkupLikeValuesChangeNothing) {
  const std::string value =
      "x </parameter> y\n</parameter>\n</param\n</function>\n < </ <\n<parameter=z>";
  expect_outcome("hm " + xml("write", {{"text", value}, {"count", "1"}}), "qwen3_coder",
                 {"hm", {{"write", "{\"text\": " + Json(value).dump() + ", \"count\": 1}"}}});
}

TEST(ToolCallParserXml, AnUnknownToolIsACallWithStrings) {
  expect_outcome(xml("nope", {{"x", "1"}}), "qwen3_coder", {"", {{"nope", R"({"x": "1"})"}}});
}

TEST(ToolCallParserXml, OfARepeatedParameterTheLastCounts) {
  expect_outcome(xml("get_weather", {{"days", "1"}, {"city", "A"}, {"days", "2"}}), "qwen3_coder",
                 {"", {{"get_weather", R"({"days": 2, "city": "A"})"}}});
}

TEST(ToolCallParserXml, CompactCallsWithoutLineBreaks) {
  expect_outcome("<tool_call><function=write><parameter=count>3</parameter></function></tool_call>",
                 "qwen3_coder", {"", {{"write", R"({"count": 3})"}}});
}

TEST(ToolCallParserXml, MalformedCallsComeOutUnchanged) {
  for (const std::string text : {
           "<tool_call>",
           "<tool_call>\n",
           "see <tool_call> tags\n",
           "<tool_call>\n</tool_call>",
           "<tool_call>\n{\"name\": \"x\", \"arguments\": {}}\n</tool_call>",
           "<tool_call>\n<function=>\n</function>\n</tool_call>",
           "<tool_call>\n<function=a\nb>\n</function>\n</tool_call>",
           "<tool_call>\n<function=a>\njunk\n</function>\n</tool_call>\n",
           "<tool_call>\n<function=a>\n<parameter=x>\n1\n</function>\n</tool_call> after",
           "<tool_call>\n<function=a>\n<parameter=x>\n1\n</parameter>\n</tool_call>",
           "<tool_call>\n<function=a>\n<parameter=x>\n1\n</param",
           "\n<tool_call>\n<function=a>\n<par",
           "<tool_call>\n<function=a>\n</function>\nmore </tool_call>",
           "<tool_call>\n<function=a>\n</function>\n</tool_ca",
           "<tool_call>\n<function=a>\n<parameter=>\n1\n</parameter>\n</function>\n</tool_call>",
       }) {
    expect_unchanged(text, "qwen3_coder");
  }
}

TEST(ToolCallParserXml, ACallAfterAMalformedOneCounts) {
  const std::string bad = "<tool_call>\n<function=a>\njunk\n";
  expect_outcome(bad + xml("get_weather", {{"city", "Oslo"}}), "qwen3_coder",
                 {"<tool_call>\n<function=a>\njunk", {{"get_weather", R"({"city": "Oslo"})"}}});
}

TEST(ToolCallParserXml, OnlyTheClosingTagMayBeMissingAtTheEnd) {
  expect_outcome("<tool_call>\n<function=a>\n</function>\n", "qwen3_coder", {"", {{"a", "{}"}}});
}

TEST(ToolCallParserXml, AValueOfManyClosingTagsIsReadOnce) {
  // Quadratic work on this input would take minutes.
  std::string value;
  for (int i = 0; i < 200000; ++i) value += "</tool_call>";
  ToolCallParser parser = std::move(ToolCallParser::make("qwen3_coder", tools(), 1)).value();
  testing::ToolCallCollector collector;
  const std::string text = xml("write", {{"text", value}});
  for (std::size_t at = 0; at < text.size(); at += 12) {
    collector.add(parser.push(std::string_view(text).substr(at, 12)));
  }
  collector.add(parser.finish());
  ASSERT_EQ(collector.outcome().calls.size(), 1u);
  EXPECT_EQ(collector.outcome().calls[0].arguments.size(), value.size() + 12);
}

TEST(ToolCallParserHermes, CallsAndContent) {
  expect_outcome(
      "Sure.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": 2}]}}\n"
      "</tool_call>\n<tool_call>{\"arguments\": {}, \"name\": \"g\"}</tool_call>\n",
      "hermes", {"Sure.", {{"f", R"({"a": [1, {"b": 2}]})"}, {"g", "{}"}}});
}

TEST(ToolCallParserHermes, ArgumentsKeepTheirText) {
  expect_outcome(R"(<tool_call>{"x": {"arguments": 1}, "name": "f", "arguments": {"n": )"
                 R"(12345678901234567890123, "s": "</tool_call> } \" {"} }</tool_call>)",
                 "hermes",
                 {"", {{"f", R"({"n": 12345678901234567890123, "s": "</tool_call> } \" {"})"}}});
}

TEST(ToolCallParserHermes, ArgumentsMayBeMissingOrJsonInAString) {
  expect_outcome(R"(<tool_call>{"name": "f"}</tool_call>)", "hermes", {"", {{"f", "{}"}}});
  expect_outcome(R"(<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>)", "hermes",
                 {"", {{"f", R"({"a": 1})"}}});
}

TEST(ToolCallParserHermes, OnlyTheClosingTagMayBeMissingAtTheEnd) {
  expect_outcome("<tool_call>\n{\"name\": \"f\"}\n", "hermes", {"", {{"f", "{}"}}});
}

TEST(ToolCallParserHermes, MalformedCallsComeOutUnchanged) {
  for (const std::string text : {
           "<tool_call>",
           "<tool_call>x",
           "<tool_call>\n[1]\n</tool_call>",
           "<tool_call>\n{\"name\": \"f\", \"arguments\": {\n</tool_call> tail",
           "<tool_call>{\"name\": \"f\", \"arguments\": []}</tool_call>",
           "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
           "<tool_call>{\"name\": \"f\", \"arguments\": \"[1]\"}</tool_call>",
           "<tool_call>{\"arguments\": {}}</tool_call>",
           "<tool_call>{\"name\": 5}</tool_call>",
           "<tool_call>{name: f}</tool_call>",
           "<tool_call>{\"name\": \"f\"]</tool_call>",
           "<tool_call>{\"name\": \"f\"} x</tool_call>",
           "<tool_call>\n{\"name\": \"f",
           "<tool_call>{\"name\": \"f\"}</tool_c",
           "<tool_call>\n<function=a>\n</function>\n</tool_call>",
       }) {
    expect_unchanged(text, "hermes");
  }
}

TEST(ToolCallParser, RandomMixturesOfFragmentsDoNotDependOnTheSplitAndLoseNothing) {
  const std::vector<std::string> fragments = {"<tool_call>",
                                              "</tool_call>",
                                              "<function=f>",
                                              "</function>",
                                              "<parameter=p>",
                                              "</parameter>",
                                              "\n",
                                              " ",
                                              "x",
                                              "<",
                                              "</",
                                              "{",
                                              "}",
                                              "\"name\": \"f\"",
                                              ", ",
                                              "\"arguments\": ",
                                              "[",
                                              "\"",
                                              "\\"};
  std::mt19937 random(11);
  for (int round = 0; round < 400; ++round) {
    std::string text;
    for (std::size_t n = random() % 14; n > 0; --n) text += fragments[random() % fragments.size()];
    for (const std::string_view format : ToolCallParser::formats()) {
      const auto whole = testing::parse_tool_calls({text}, format, tools());
      if (whole.calls.empty()) {
        ASSERT_EQ(whole.content, text);
      }
      for (const auto& pieces : testing::splits_of(text, 3)) {
        ASSERT_EQ(testing::parse_tool_calls(pieces, format, tools()), whole) << text;
      }
    }
  }
}

}  // namespace
}  // namespace replayssm
