// N03 (QwenLM/Qwen3#1297; vmlx #192): a tool call that the model only thought about was made, and
// a call in plain lines was taken for one.
#include <gtest/gtest.h>

#include "splits.h"
#include "text/reasoning_parser.h"
#include "tool_call_outcome.h"

namespace replayssm {
namespace {

struct Answer {
  std::string reasoning;
  testing::ToolCallOutcome rest;
};

// The composition that the server uses: what is reasoning never reaches the tool call parser.
Answer read(const std::vector<std::string>& pieces, std::string_view format) {
  ReasoningParser reasoning(ReasoningParser::Start::in_reasoning);
  ToolCallParser calls = std::move(ToolCallParser::make(format, nullptr, 1)).value();
  testing::ToolCallCollector collector;
  Answer answer;
  const auto take = [&](const ReasoningDelta& delta) {
    answer.reasoning += delta.reasoning;
    collector.add(calls.push(delta.content));
  };
  for (const std::string& piece : pieces) take(reasoning.push(piece));
  take(reasoning.finish());
  collector.add(calls.finish());
  answer.rest = collector.outcome();
  return answer;
}

TEST(N03, CallsInsideReasoningStayReasoning) {
  const std::string xml = "<tool_call>\n<function=rm>\n</function>\n</tool_call>";
  const std::string json = "<tool_call>\n{\"name\": \"rm\"}\n</tool_call>";
  for (const auto& [format, call] : {std::pair("qwen3_coder", xml), std::pair("hermes", json)}) {
    for (const auto& pieces : testing::splits_of("I could " + call + "\n</think>\n\nNo.")) {
      const Answer answer = read(pieces, format);
      ASSERT_EQ(answer.reasoning, "I could " + call);
      ASSERT_EQ(answer.rest, (testing::ToolCallOutcome{"No.", {}}));
    }
    for (const auto& pieces : testing::splits_of(call + "\n</think>\n\n" + call)) {
      const Answer answer = read(pieces, format);
      ASSERT_EQ(answer.reasoning, call);
      ASSERT_EQ(answer.rest, (testing::ToolCallOutcome{"", {{"rm", "{}"}}}));
    }
    ASSERT_EQ(read({call}, format).rest.calls.size(), 0u);
  }
}

TEST(N03, ACallInPlainLinesIsContent) {
  const std::string text = "function=rm\nparameter=path\n/tmp\n";
  EXPECT_EQ(testing::parse_tool_calls({text}, "qwen3_coder", nullptr),
            (testing::ToolCallOutcome{text, {}}));
}

}  // namespace
}  // namespace replayssm
