// N01 (vllm-project/vllm#22975, #30439): the text of a tool call was left in the content.
#include <gtest/gtest.h>

#include "splits.h"
#include "tool_call_outcome.h"

namespace replayssm {
namespace {

const nlohmann::ordered_json kTools = nlohmann::ordered_json::parse(R"([
  {"type": "function", "function": {"name": "add", "parameters": {"type": "object",
   "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}}])");

void expect_only_calls(const std::string& text, std::string_view format, std::size_t calls) {
  for (const auto& pieces : testing::splits_of(text)) {
    const auto outcome = testing::parse_tool_calls(pieces, format, kTools);
    ASSERT_EQ(outcome.content, "") << text;
    ASSERT_EQ(outcome.calls.size(), calls);
    for (const auto& call : outcome.calls) {
      ASSERT_EQ(call.name, "add");
      ASSERT_EQ(nlohmann::json::parse(call.arguments), (nlohmann::json{{"a", 1}, {"b", 2}}));
    }
  }
}

TEST(N01, QwenXml) {
  const std::string call =
      "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n"
      "</parameter>\n</function>\n</tool_call>";
  expect_only_calls(call, "qwen3_coder", 1);
  expect_only_calls("\n\n" + call + "\n" + call + "\n", "qwen3_coder", 2);
}

TEST(N01, HermesJson) {
  const std::string call =
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}\n</tool_call>";
  expect_only_calls(call, "hermes", 1);
  expect_only_calls("\n" + call + "\n" + call, "hermes", 2);
}

}  // namespace
}  // namespace replayssm
