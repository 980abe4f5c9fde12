// N02 (QwenLM/Qwen3-Coder#480; noonghunna/club-3090#145): parameters of a wrong type, and values of
// several lines or with markup cut short.
#include <gtest/gtest.h>

#include "splits.h"
#include "tool_call_outcome.h"

namespace replayssm {
namespace {

TEST(N02, EveryValueHasItsTypeAndAllOfItsText) {
  const auto tools = nlohmann::ordered_json::parse(R"([
    {"type": "function", "function": {"name": "edit", "parameters": {"type": "object", "properties": {
      "line": {"type": "integer"}, "dry_run": {"type": "boolean"},
      "paths": {"type": "array", "items": {"type": "string"}},
      "options": {"type": "object"}, "text": {"type": "string"}, "id": {"type": "string"}}}}}])");
  const std::string code = "if (a < b) {\n\n  s = \"</parameter>\";  // </parameter is text\n}";
  const std::string text =
      "<tool_call>\n<function=edit>\n<parameter=line>\n42\n</parameter>\n"
      "<parameter=dry_run>\nfalse\n</parameter>\n"
      "<parameter=paths>\n[\"a\",\n \"b\"]\n</parameter>\n"
      "<parameter=options>\n{\"deep\": {\"er\": [1, null]}}\n</parameter>\n"
      "<parameter=text>\n" +
      code +
      "\n</parameter>\n"
      "<parameter=id>\n0042\n</parameter>\n</function>\n</tool_call>";
  const nlohmann::json expected = {
      {"line", 42},          {"dry_run", false},
      {"paths", {"a", "b"}}, {"options", {{"deep", {{"er", {1, nullptr}}}}}},
      {"text", code},        {"id", "0042"}};
  for (const auto& pieces : testing::splits_of(text)) {
    const auto outcome = testing::parse_tool_calls(pieces, "qwen3_coder", tools);
    ASSERT_EQ(outcome.content, "");
    ASSERT_EQ(outcome.calls.size(), 1u);
    ASSERT_EQ(nlohmann::json::parse(outcome.calls[0].arguments), expected);
  }
}

}  // namespace
}  // namespace replayssm
