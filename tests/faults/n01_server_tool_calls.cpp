// vllm-project/vllm#22975, #30439: a call stayed in the content. QwenLM/Qwen3-Coder#480,
// noonghunna/club-3090#145: arguments of the wrong types. QwenLM/Qwen3#1297, vmlx #192: a call
// inside the reasoning was taken for one.
#include "../server/api_harness.h"

namespace replayssm::server {
namespace {

Json edit_tool() {
  return {{"type", "function"},
          {"function",
           {{"name", "edit"},
            {"parameters",
             {{"type", "object"},
              {"properties",
               {{"line", {{"type", "integer"}}},
                {"force", {{"type", "boolean"}}},
                {"tags", {{"type", "array"}, {"items", {{"type", "string"}}}}},
                {"text", {{"type", "string"}}}}}}}}}};
}

struct ToolAnswer {
  Json content;
  std::string reasoning;
  Json calls;
  std::string finish;
};

ToolAnswer ask(const std::string& text, bool stream, const Frontend& frontend = tiny_frontend()) {
  ApiHarness harness([&](const GenerationRequest&, int) { return says(text); }, {}, frontend);
  Json body = chat_body("Go on", stream);
  body["tools"] = Json::array({edit_tool()});
  const Received received = harness.post("/v1/chat/completions", body);
  if (stream) {
    const Assembled all = assemble(received.stream);
    EXPECT_EQ(all.finish_reasons.size(), 1u);
    return {all.content.empty() ? Json() : Json(all.content), all.reasoning, all.tool_calls,
            all.finish_reasons.at(0)};
  }
  const Json choice = body_json(received)["choices"][0];
  const Json& message = choice["message"];
  return {message["content"], message.value("reasoning_content", ""),
          message.value("tool_calls", Json::array()), choice["finish_reason"].get<std::string>()};
}

const std::string kValue = "a\nb </parameter text> & \"quoted\" {x}";

TEST(N01, ACallInTheModelsFormatLeavesNoContent) {
  const std::string xml =
      "<tool_call>\n<function=edit>\n<parameter=line>\n7\n</parameter>\n<parameter=force>\ntrue\n"
      "</parameter>\n<parameter=tags>\n[\"a\", \"b\"]\n</parameter>\n<parameter=text>\n" +
      kValue + "\n</parameter>\n</function>\n</tool_call>";
  for (const bool stream : {false, true}) {
    const ToolAnswer answer = ask(xml, stream);
    EXPECT_TRUE(answer.content.is_null());
    EXPECT_EQ(answer.finish, "tool_calls");
    ASSERT_EQ(answer.calls.size(), 1u);
    const Json arguments =
        parse_json(answer.calls[0]["function"]["arguments"].get<std::string>()).value();
    const Json expected = {
        {"line", 7}, {"force", true}, {"tags", Json::array({"a", "b"})}, {"text", kValue}};
    EXPECT_EQ(arguments, expected);
  }
}

// The frontend's template writes Hermes calls.
TEST(N01, ACallInHermesFormatLeavesNoContent) {
  const std::string text =
      "Let me see.</think>\n<tool_call>\n{\"name\": \"edit\", \"arguments\": {\"line\": 7}}\n"
      "</tool_call>";
  for (const bool stream : {false, true}) {
    const ToolAnswer answer = ask(text, stream, thinking_frontend());
    EXPECT_TRUE(answer.content.is_null()) << answer.content;
    EXPECT_EQ(answer.reasoning, "Let me see.");
    EXPECT_EQ(answer.finish, "tool_calls");
    ASSERT_EQ(answer.calls.size(), 1u);
    EXPECT_EQ(parse_json(answer.calls[0]["function"]["arguments"].get<std::string>()).value(),
              (Json{{"line", 7}}));
  }
}

TEST(N03, ACallInsideTheReasoningIsNoCall) {
  const std::string call = "<tool_call>\n{\"name\": \"edit\", \"arguments\": {}}\n</tool_call>";
  for (const bool stream : {false, true}) {
    const ToolAnswer answer =
        ask("I could say " + call + ".</think>\n\nNo.", stream, thinking_frontend());
    EXPECT_TRUE(answer.calls.empty());
    EXPECT_EQ(answer.content, "No.");
    EXPECT_EQ(answer.reasoning, "I could say " + call + ".");
    EXPECT_EQ(answer.finish, "stop");
  }
}

}  // namespace
}  // namespace replayssm::server
