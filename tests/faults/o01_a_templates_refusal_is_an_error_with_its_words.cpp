// O01, ggml-org/llama.cpp#27367: a system message in the middle of a conversation took the server
// down with an internal error. What a template raises is an ordinary error in the template's words.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "text/chat_template.h"
#include "unit/text_golden_files.h"

namespace replayssm {
namespace {

using nlohmann::ordered_json;

ChatTemplate family_template(const char* name) {
  std::ifstream file(text_data(std::string("templates/") + name), std::ios::binary);
  const std::string source{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Result<ChatTemplate> made = ChatTemplate::parse(source);
  if (!made) throw std::runtime_error(made.error().message);
  return *std::move(made);
}

const ordered_json kSystemInTheMiddle = {{{"role", "user"}, {"content", "a"}},
                                         {{"role", "assistant"}, {"content", "b"}},
                                         {{"role", "system"}, {"content", "c"}},
                                         {{"role", "user"}, {"content", "d"}}};

TEST(O01, ARefusedTurnIsAnErrorWithTheTemplatesTextAndLine) {
  const ChatTemplate chat = family_template("qwen35.jinja");
  const Result<RenderedPrompt> prompt = chat.render({{"messages", kSystemInTheMiddle}});
  ASSERT_FALSE(prompt.ok());
  const std::string& message = prompt.error().message;
  EXPECT_NE(message.find("System message must be at the beginning."), std::string::npos) << message;
  EXPECT_NE(message.find("line "), std::string::npos) << message;
  // And the template goes on serving others.
  EXPECT_TRUE(chat.render({{"messages", {kSystemInTheMiddle[0]}}}).ok());
}

TEST(O01, AFamilyThatAcceptsTheTurnRendersIt) {
  const Result<RenderedPrompt> prompt =
      family_template("qwen3_next.jinja").render({{"messages", kSystemInTheMiddle}});
  ASSERT_TRUE(prompt.ok());
  EXPECT_NE(text_of(*prompt).find("<|im_start|>system\nc<|im_end|>"), std::string::npos);
}

TEST(O01, MessagesOfAnyShapeAreAnErrorOrText) {
  const ChatTemplate chat = family_template("qwen35.jinja");
  const ordered_json shapes[] = {nullptr,
                                 5,
                                 "text",
                                 ordered_json::array(),
                                 {{{"role", 1}}},
                                 {ordered_json::array()},
                                 {nullptr},
                                 {{{"content", "x"}}},
                                 {{{"role", "user"}, {"content", {{{"type", "video"}}}}}},
                                 {{{"role", "user"}, {"content", {{"a", 1}}}}}};
  for (const ordered_json& messages : shapes) {
    const Result<RenderedPrompt> prompt = chat.render({{"messages", messages}});
    if (!prompt.ok()) {
      EXPECT_NE(prompt.error().message, "");
    }
  }
}

}  // namespace
}  // namespace replayssm
