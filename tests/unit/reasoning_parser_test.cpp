#include "text/reasoning_parser.h"

#include <gtest/gtest.h>

#include "splits.h"

namespace replayssm {
namespace {

using Start = ReasoningParser::Start;

struct Parts {
  std::string reasoning;
  std::string content;
  bool operator==(const Parts&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Parts& parts) {
  return out << "reasoning \"" << parts.reasoning << "\" content \"" << parts.content << '"';
}

Parts run(const std::vector<std::string>& pieces, Start start) {
  ReasoningParser parser(start);
  Parts parts;
  const auto add = [&](const ReasoningDelta& delta) {
    parts.reasoning += delta.reasoning;
    parts.content += delta.content;
  };
  for (const std::string& piece : pieces) add(parser.push(piece));
  add(parser.finish());
  return parts;
}

void expect_parts(const std::string& text, Start start, const Parts& expected) {
  for (const auto& pieces : testing::splits_of(text)) {
    ASSERT_EQ(run(pieces, start), expected) << text;
  }
}

TEST(ReasoningParser, ThePromptOpenedTheReasoning) {
  expect_parts("Let me see.\n\nTwo.\n</think>\n\nThe answer is 2.", Start::in_reasoning,
               {"Let me see.\n\nTwo.", "The answer is 2."});
}

TEST(ReasoningParser, TheModelOpenedTheReasoning) {
  expect_parts("<think>\nhm\n</think>\n\nyes\n", Start::in_content, {"hm", "yes\n"});
  expect_parts("\n <think>hm</think>yes", Start::in_content, {"hm", "yes"});
}

TEST(ReasoningParser, AModelThatRepeatsTheOpeningTagLeaksNone) {
  expect_parts("<think>\nhm\n</think>\n\nyes", Start::in_reasoning, {"hm", "yes"});
}

TEST(ReasoningParser, TextWithoutTagsPassesThrough) {
  expect_parts("  plain\n < text </thin \n\n", Start::in_content,
               {"", "  plain\n < text </thin \n\n"});
  expect_parts("", Start::in_content, {"", ""});
  expect_parts(" \n ", Start::in_content, {"", " \n "});
}

TEST(ReasoningParser, ReasoningThatIsNotClosedStaysReasoning) {
  expect_parts("on and on </thi", Start::in_reasoning, {"on and on </thi", ""});
  expect_parts("on\n\n", Start::in_reasoning, {"on\n\n", ""});
  expect_parts("<think>on", Start::in_content, {"on", ""});
}

TEST(ReasoningParser, TagsInsideTheAnswerAreText) {
  expect_parts("x</think>use <think> and </think> tags", Start::in_reasoning,
               {"x", "use <think> and </think> tags"});
  expect_parts("a <think>b</think>", Start::in_content, {"", "a <think>b</think>"});
}

TEST(ReasoningParser, ATagLikeTextIsNoTag) {
  expect_parts("a </thinking> b </ think> <</think>c", Start::in_reasoning,
               {"a </thinking> b </ think> <", "c"});
  expect_parts("<thinker>", Start::in_content, {"", "<thinker>"});
}

TEST(ReasoningParser, EmptyReasoning) {
  expect_parts("\n\n</think>\n\nyes", Start::in_reasoning, {"", "yes"});
  expect_parts("</think>", Start::in_reasoning, {"", ""});
}

TEST(ReasoningParser, ReasoningIsReleasedAsItComes) {
  ReasoningParser parser(Start::in_reasoning);
  EXPECT_EQ(parser.push("first ").reasoning, "first ");
  EXPECT_TRUE(parser.in_reasoning());
  EXPECT_EQ(parser.push("second\n</th").reasoning, "second");
  EXPECT_EQ(parser.push("ink>").reasoning, "");
  EXPECT_FALSE(parser.in_reasoning());
  EXPECT_EQ(parser.push("answer").content, "answer");
}

}  // namespace
}  // namespace replayssm
