// O02, reported as hal0 #992: clients send the arguments of earlier tool calls as JSON text, and
// templates iterate over an object.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "text/chat_template.h"
#include "text/tool_call_arguments.h"
#include "unit/text_golden_files.h"

namespace replayssm {
namespace {

using nlohmann::ordered_json;

ordered_json conversation(const ordered_json& arguments) {
  return {{{"role", "user"}, {"content", "Weather?"}},
          {{"role", "assistant"},
           {"content", ""},
           {"tool_calls",
            {{{"type", "function"},
              {"function", {{"name", "get_weather"}, {"arguments", arguments}}}}}}}};
}

Result<RenderedPrompt> rendered(const ordered_json& arguments) {
  std::ifstream file(text_data("templates/qwen35.jinja"), std::ios::binary);
  const std::string source{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const Result<ChatTemplate> made = ChatTemplate::parse(source);
  if (!made) return made.error();
  return made->render({{"messages", conversation(arguments)}});
}

TEST(O02, TextAndObjectRenderAlike) {
  const ordered_json object = {
      {"city", "Z\u00fcrich"}, {"days", 2}, {"deep", {{"b", 1.5}, {"a", {1}}}}};
  const Result<RenderedPrompt> from_object = rendered(object);
  const Result<RenderedPrompt> from_text = rendered(object.dump());
  ASSERT_TRUE(from_object.ok()) << from_object.error().message;
  ASSERT_TRUE(from_text.ok()) << from_text.error().message;
  EXPECT_EQ(*from_text, *from_object);
  EXPECT_NE(text_of(*from_text).find("<parameter=deep>\n{\"b\": 1.5, \"a\": [1]}\n</parameter>"),
            std::string::npos)
      << text_of(*from_text);
}

TEST(O02, NoTextMeansNoArguments) {
  for (const char* text : {"", "  ", "{}"}) {
    const Result<RenderedPrompt> prompt = rendered(text);
    ASSERT_TRUE(prompt.ok()) << prompt.error().message;
    EXPECT_EQ(text_of(*prompt).find("<parameter"), std::string::npos);
  }
}

TEST(O02, NullMeansNoArguments) {
  ordered_json messages = conversation(nullptr);
  ASSERT_TRUE(parse_tool_call_arguments(messages).ok());
  EXPECT_EQ(messages, conversation(ordered_json::object()));
}

TEST(O02, TextThatIsNoObjectIsRefusedWithItsPlace) {
  for (const char* text : {"{\"city\": ", "[1]", "5", "\"x\"", "{\"a\": 1} trailing"}) {
    const Result<RenderedPrompt> prompt = rendered(text);
    ASSERT_FALSE(prompt.ok()) << text;
    EXPECT_NE(prompt.error().message.find("messages[1].tool_calls[0].function.arguments"),
              std::string::npos)
        << prompt.error().message;
  }
}

TEST(O02, DeeplyNestedTextIsRefusedAndNotRecursedInto) {
  const std::string deep = fmt::format("{{\"a\": {:[>100000}{:]>100000}}}", "", "");
  EXPECT_FALSE(rendered(deep).ok());
}

TEST(O02, OtherShapesAreLeftAlone) {
  for (ordered_json messages :
       {ordered_json(5), ordered_json({{{"tool_calls", 5}}}),
        ordered_json({{{"tool_calls", {1, nullptr}}}}),
        ordered_json({{{"tool_calls", {{{"function", 3}}}}}}), conversation({{"a", 1}})}) {
    const ordered_json before = messages;
    ASSERT_TRUE(parse_tool_call_arguments(messages).ok());
    EXPECT_EQ(messages, before);
  }
}

}  // namespace
}  // namespace replayssm
